"""The commands of the recorder: a hub of its own that knows an admin, and a query service."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from support.cli.cli_binary import VEEN, Done, end_hub, environment
from veen.digest import h
from zone.services import free_port

HUB = "recorder-hub"
TOKEN = "the auditor's token"
WAIT_SEC = 60.0
LINES = [
    {"event_type": "order.placed", "subject_id": "u:7", "origin": "shop", "payload": {"n": 2},
     "event_time": "2025-11-19T03:20:01.000Z"},
    {"event_type": "order.cancelled", "subject_id": "u:8", "origin": "shop", "payload": {"n": 3},
     "event_time": 1_763_522_402_000},
]  # fmt: skip


def show_recorder(world: Any) -> None:
    """``world`` is the scenario's; whatever happens, nothing that was started here stays."""
    try:
        _set_up(world)
        _streams(world)
        _events(world)
        _checkpoints(world)
        _replay(world)
        _index(world)
        _queries(world)
    finally:
        end_hub(world.folder, HUB)


def _set_up(world: Any) -> None:
    port, key = free_port(), {}
    for name in ("keeper", "shop", "asker"):
        world.do("keygen", "--out", name, "--insecure-plain")
        key[name] = json.loads(world.do("id", "show", "--client", name, "--json").out)["client_id"]
    (world.folder / "recorder-hub.toml").write_text(
        f'listen = "127.0.0.1:{port}"\nadmission = "open"\nworkers = 1\n'
        f'[[principals]]\nname = "keeper"\nrole = "recorder_admin"\n'
        f'public_key = "{key["keeper"]}"\nread = ["*"]\n'
    )
    world.do("hub", "start", "--data-dir", HUB, "--config", "recorder-hub.toml")
    hub_id = json.loads(world.do("hub", "key", "--hub", HUB, "--json").out)["hub_id"]
    world.hub_id, world.recorder_id = hub_id, key["keeper"]
    world.query_port = free_port()
    (world.folder / "token").write_text(TOKEN)
    (world.folder / "recorder.toml").write_text(
        f'zone = "plant-1"\nadmins = ["{key["keeper"]}"]\n'
        f'[hub]\nurl = "http://127.0.0.1:{port}"\nhub_id = "{hub_id}"\nclient = "keeper"\n'
        'principal = "keeper"\nreader = "keeper/identity_card.pub"\n'
        '[[streams]]\nname = "record/app/orders"\n'
        'event_types = ["order.placed", "order.cancelled"]\n'
        f'producers = ["{key["shop"]}"]\n'
        '[[streams]]\nname = "record/app/logs"\nevent_types = ["log.line"]\n'
        "[checkpoint]\nevery_events = 1\n"
        '[index]\npath = "index"\n'
        f'[query]\nlisten = "127.0.0.1:{world.query_port}"\nengine = "inline"\nworkers = 1\n'
        f'[[query.principals]]\nname = "auditor-1"\ntoken_sha256 = "{h(TOKEN.encode()).hex()}"\n'
        f'public_key = "{key["asker"]}"\nscopes = ["record/app/*"]\n'
    )


def _streams(world: Any) -> None:
    world.show("recorder-config-check", "recorder", "config", "check")
    world.show("recorder-streams", "recorder", "streams", "--register")


def _events(world: Any) -> None:
    item = ("--type", "order.placed", "--subject", "u:7", "--origin", "shop")
    who = ("--client", "shop")
    when = ("--time", "2025-11-19T03:20:00.000Z", "--payload", '{"n":1}')
    world.show("recorder-emit", "recorder", "emit", *who, *item, *when)
    text = "".join(json.dumps(line) + "\n" for line in LINES)
    (world.folder / "events.jsonl").write_text(text)
    world.show("recorder-emit.lines", "recorder", "emit", *who, "--file", "events.jsonl")
    (world.folder / "shop.log").write_text('{"event_type":"log.line","text":"up"}\n' * 2)
    origin = ("--origin", "shop", "--subject", "service:shop")
    world.show("recorder-tail", "recorder", "tail", "shop.log", *who, *origin, "--once")
    old = ("--from", "record/app/old", "--last-seq", "812")
    world.show(
        "recorder-migrate-rename", "recorder", "migrate", "rename", *old,
        "--to", "record/app/orders",
    )  # fmt: skip
    world.show(
        "recorder-migrate-split", "recorder", "migrate", "split", *old,
        "--to", "record/app/orders", "--to", "record/app/logs",
    )  # fmt: skip


def _checkpoints(world: Any) -> None:
    world.show("recorder-checkpoint-create", "recorder", "checkpoint", "create")
    world.show("anchor-publish", "anchor", "publish")
    words = ("recorder", "checkpoint", "run", "--poll-sec", "1")
    world.do("recorder", "emit", "--client", "shop", "--file", "events.jsonl")
    with foreground(world, "recorder-checkpoint-run", *words) as process:
        assert process.stdout is not None
        # The checkpoint and its anchor; what is printed is read by whoever ends it.
        world.detail = [process.stdout.readline() for _ in range(2)]
    world.show(
        "recorder-checkpoint-latest", "recorder", "checkpoint", "latest", "--out", "last.cbor"
    )
    world.show("recorder-checkpoint-list", "recorder", "checkpoint", "list")
    world.show("recorder-checkpoint-verify", "recorder", "checkpoint", "verify", "last.cbor")
    world.show(
        "anchor-verify", "anchor", "verify", "--checkpoint", "last.cbor", "--ledger",
        "anchors.ledger", "--anchor", _anchor_of(world.folder),
    )  # fmt: skip
    world.show("anchor-list", "anchor", "list")


def _anchor_of(folder: Path) -> Path:
    """The anchor of the last checkpoint, under a name that is no hash."""
    newest = max((folder / "checkpoints" / "anchors").glob("*/*.cbor"), key=_changed)
    (folder / "file-1.cbor").write_bytes(newest.read_bytes())
    return Path("file-1.cbor")


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns


def _replay(world: Any) -> None:
    stream = ("--stream", "record/app/orders")
    world.show(
        "recorder-replay", "recorder", "replay", *stream, "--from", "2", "--to", "4",
        "--with-proofs", "--out", "orders.jsonl",
    )  # fmt: skip
    world.show("recorder-replay.verify", "recorder", "replay", "--verify", "orders.jsonl")


def _index(world: Any) -> None:
    world.show("recorder-index-follow", "recorder", "index", "follow", "--once")
    for name in ("status", "verify", "rebuild"):
        world.show(f"recorder-index-{name}", "recorder", "index", name)


def _queries(world: Any) -> None:
    at = ("--api", f"http://127.0.0.1:{world.query_port}", "--token-file", "token")
    asked = ("--stream", "record/app/orders", "--subject", "u:7", "--field", "event_time",
             "--field", "payload.n")  # fmt: skip
    with foreground(world, "recorder-serve", "recorder", "serve") as process:
        _wait_for(lambda: _answers(world.query_port), process)
        world.show("query-submit", "query", "submit", *asked, *at)
        result = json.loads(world.do("query", "submit", *asked, *at, "--json").out)["result_id"]
        world.show("query-status", "query", "status", result, *at)
        world.show("query-result", "query", "result", result, *at)
        world.show("query-proof", "query", "proof", result, "--out", "proof.json", *at)
    world.show("query-verify", "query", "verify", "proof.json", "--hub-id", world.hub_id,
               "--recorder-id", world.recorder_id, "--hub-identity", HUB)  # fmt: skip
    world.show("query-replay", "query", "replay", "proof.json")


@contextmanager
def foreground(world: Any, name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that stays until it is told to stop; of what it logs, the first line is kept."""
    world.detail = []
    process = subprocess.Popen(
        [VEEN, *words, *world.form], cwd=world.folder, env=environment(world.folder), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT_SEC)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    detail = "".join(world.detail) + out
    done = Done(process.returncode, detail, "".join(err.splitlines(keepends=True)[:1]))
    world.add(name, words, done)


def _wait_for(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_SEC
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _answers(port: int) -> bool:
    """Whether the index has reached a checkpoint up to which queries can speak."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
