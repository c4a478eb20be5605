"""The hub and the query service of a zone as processes, without its Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from recorder import settings as recorder_settings
from recorder.index.reader import status
from recorder.index.tables import IndexHome, NoIndex
from zone import services
from zone.directory import ZoneHome
from zone.init import ZoneRequest, init
from zone.services import ZoneService, authorize

_START_SEC = 90.0


def make_zone(root: Path, role: str = "online", **more: Any) -> ZoneHome:
    home, usual = ZoneHome(root), {"name": root.name, "storage": None, "trust": None}
    init(home, ZoneRequest(role=role, **(usual | more)), now=int(time.time()), random=os.urandom)
    return home


class RunningZone:
    """A zone whose hub and query service run; commands act beside them."""

    def __init__(self, home: ZoneHome) -> None:
        self.home = home

    def veen(self, *words: str | Path, code: int = 0, **more: str) -> str:
        """What a command writes to standard output; its exit code must be ``code``."""
        done = self.run(*words, **more)
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *words: str | Path, code: int = 0) -> Any:
        return json.loads(self.veen(*words, "--json", code=code))

    def run(self, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "cli.main", *map(str, words)],
            env=os.environ | more, cwd=self.home.root, capture_output=True, text=True,
            check=False, timeout=200, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    @property
    def config(self) -> tuple[str, Path]:
        return "--config", self.home.file

    @property
    def api(self) -> tuple[str | Path, ...]:
        url = f"http://{recorder_settings.load(self.home.file).query.listen}"
        return "--api", url, "--token-file", self.home.token

    def index_status(self) -> dict[str, Any]:
        home = IndexHome(recorder_settings.load(self.home.file).index)
        try:
            return status(home, int(time.time())).document()
        except NoIndex:
            return {"checkpoint": None, "streams": [], "trouble": None}

    def is_indexed(self) -> bool:
        """Whether every stream of the index has reached the last checkpoint of the hub."""
        shown = self.json("recorder", "checkpoint", "latest", *self.config)
        return bool(self.index_status()["checkpoint"] == shown["checkpoint_id"])

    def script(self, text: str, work: Path, **more: str) -> str:
        """What a box of the runbook writes, run as a person would paste it."""
        program = work / "veen"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m cli.main "$@"\n')
        program.chmod(0o755)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            env=os.environ | {"PATH": f"{work}:{os.environ['PATH']}", "WORK": str(work)} | more,
            cwd=work, capture_output=True, text=True, check=False, timeout=300,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def emit(self, count: int, *, kind: str = "http.access", who: str = "gateway") -> None:
        line = {"event_type": kind, "subject_id": "u:7", "origin": "shop"}
        file = self.home.root / "events.jsonl"
        file.write_text(
            "".join(json.dumps(line | {"payload": {"n": n}}) + "\n" for n in range(count))
        )
        self.veen(
            "recorder", "emit", *self.config, "--file", file,
            "--client", self.home.identity(who).root, "--principal", who,
            "--cap", self.home.capability(who),
        )  # fmt: skip


@contextmanager
def running(home: ZoneHome) -> Iterator[RunningZone]:
    """Started in their order, each when the one before is ready; stopped by their ids."""
    with ExitStack() as closing:
        zone = RunningZone(home)
        hub = ("--data-dir", home.zone().hub_data)
        # As a person starts it, since some of the commands stop it and start it again.
        closing.callback(zone.run, "hub", "stop", *hub)
        zone.veen("hub", "start", *hub, *zone.config)
        authorize(home)
        closing.enter_context(_process(home, services.query(home)))
        yield zone


@contextmanager
def _process(home: ZoneHome, service: ZoneService) -> Iterator[None]:
    log = home.root / f"{service.name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            service.command, env=os.environ | dict(service.more), cwd=home.root,
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        until(
            service.is_ready, lambda: f"{service.name} does not answer: {log.read_text()[-3000:]}"
        )
        yield
    finally:
        process.terminate()
        process.wait(60)


def until(happened: Callable[[], bool], detail: Callable[[], str]) -> None:
    deadline = time.monotonic() + _START_SEC
    while not happened():
        assert time.monotonic() < deadline, detail()
        time.sleep(0.05)
