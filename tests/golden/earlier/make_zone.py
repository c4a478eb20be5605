"""Writes ``zone.tar.gz``: one zone with everything that a release leaves on disk.

It runs with the code of the version whose directories it makes, never with the current one. For
the next release, check that release out and run this there, with an archive name of its own:

    PYTHONPATH=. python make_zone.py zone.tar.gz

Names of modules are those of the version before the merge of modules (ea6156c).
"""
# mypy: ignore-errors

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from cli.zone_home import ZoneHome
from cli.zone_setup import authorize
from recorder.service.audit import Attempt, Audits

from cli import zone_state
from recorder.service.database import Database

PORTS = (18471, 18472, 18473)
MTIME = 1_794_900_000
WAIT_SEC = 120


def veen(*argv: str | Path) -> Any:
    command = [sys.executable, "-m", "cli.main", *map(str, argv), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout


@contextmanager
def running(url: str, *argv: str | Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "cli.main", *map(str, argv)])
    try:
        deadline = time.monotonic() + WAIT_SEC
        while not answers(url):
            assert process.poll() is None, argv
            assert time.monotonic() < deadline, argv
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def emit(home: ZoneHome, producer: str, kind: str, count: int) -> None:
    lines = [
        {
            "event_type": kind, "subject_id": f"user:{n % 2}", "origin": "shop",
            "event_time": 1_794_816_000_000 + n, "payload": {"n": n},
        }
        for n in range(count)
    ]  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.flush()
        who = ("--client", home.identity(producer).root, "--cap", home.capability(producer))
        veen("recorder", "emit", "--config", home.file, *who, "--file", file.name)


def fill(home: ZoneHome) -> None:
    hub, query, _ = PORTS
    hub_argv = ("hub", "start", "--foreground", "--data-dir", home.hub, "--config", home.file)
    serve = ("recorder", "serve", "--config", home.file, "--cap", home.capability("service"))
    with running(f"http://127.0.0.1:{hub}/readyz", *hub_argv):
        authorize(home)
        emit(home, "gateway", "http.access", 6)
        emit(home, "access", "login.failed", 3)
        veen("recorder", "checkpoint", "create", "--config", home.file)
        veen("anchor", "publish", "--config", home.file)
        medium = home.root / "medium"
        veen("bridge", "export", "--config", home.file, "--medium", medium, "--operator", "ops")
        with running(f"http://127.0.0.1:{query}/healthz", *serve, "--no-spark"):
            api = ("--api", f"http://127.0.0.1:{query}", "--token-file", home.token)
            veen("query", "submit", *api, "--stream", "record/app/http", "--subject", "user:1")
        emit(home, "gateway", "http.access", 1)


def leave_pending(home: ZoneHome) -> None:
    """An audit entry of the query service that the hub has not received, and a zone that failed."""
    (database,) = home.root.rglob("service.sqlite")
    attempt = Attempt(
        requester="analyst", subject_id="user:1", identity=b"a" * 32, route="/v1/queries",
        resource="query", parameters={}, purpose=None, outcome="ok", status=200,
        source="127.0.0.1", result_digest=None, time_ms=1_794_816_000_000,
    )  # fmt: skip
    Audits(Database(database)).add(attempt)
    home.run.mkdir(exist_ok=True)
    state = zone_state.State(zone_state.Stage.FAILED).and_told("hub: its port is in use")
    zone_state.write(home, state)


def pack(root: Path, target: Path) -> None:
    def plain(item: tarfile.TarInfo) -> tarfile.TarInfo | None:
        item.mtime, item.uid, item.gid, item.uname, item.gname = MTIME, 0, 0, "", ""
        return item if item.isdir() or item.isreg() or item.issym() else None

    with tarfile.open(target, "w:gz", compresslevel=9) as archive:
        archive.add(root / "z1", "z1", filter=plain)


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as folder:
        home = ZoneHome(Path(folder) / "z1")
        ports = ",".join(map(str, PORTS))
        init = ("zone", "init", "--directory", home.root, "--name", "z1", "--role", "online")
        veen(*init, "--ports", ports)
        fill(home)
        leave_pending(home)
        pack(home.root.parent, target)


if __name__ == "__main__":
    main()
