"""Imports in processes of their own, which can be told to die; started quickly: the parent has
imported everything and forks one for each line that it reads.

python import_process.py

A line is a JSON object: settings, operator, media, and one of
  {"count": true}            count the operations on disk and network, and say how many there were
  {"die_at": n}              be killed at the n-th of them
  {"die_at": n, "lose": how} and whatever was not synced is dropped, or torn
  {"point": [name, when, n]} be killed before or after the n-th call of a function
  {"signal": s, "log": file} run the command itself, and get this signal where one above would kill
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from bridge.importer import commit, importer
from bridge.importer.context import AuditOutbox
from bridge.importer.directory import ImportDirectory
from bridge.importer.ledger import ImportLedger
from bridge.importer.run import ImportRequest, run_import
from bridge.settings import load
from cli.main import main as main_of_veen
from support import breakpoints
from support.bridge.power_losses import Losses
from veen.client.client import Client
from veen.client.hub_api import HubApi
from veen.client.outbox import Outbox
from veen.client.transport import RetryPolicy
from veen.system.environment import Runtime

POINTS: dict[str, Callable[..., Any]] = {
    "begin": ImportLedger.begin,
    "hand_over": commit.BundleCommitter.hand_over,
    "emit": Client.emit_each,
    "submit": HubApi.submit_batch,
    "settle": Outbox.settle,
    "flush": Client.flush,
    "conclude": ImportLedger.conclude,
    "audit": AuditOutbox.write_once,
    "move": ImportDirectory.move,
    "applied": ImportLedger.applied,
    "take": importer.Importer.take,
}
HASTY = RetryPolicy(attempts=3, first_sec=0.01, most_sec=0.05, timeout_sec=10)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "shutil.rmtree"}


class Counter:
    """Every operation that changes a disk, or speaks to the hub, in this process."""

    def __init__(self, die_at: int, cut: Callable[[], None]) -> None:
        self.count = 0
        self.die_at = die_at
        self._cut = cut

    def tick(self) -> None:
        self.count += 1
        if self.count == self.die_at:
            self._cut()

    def install(self) -> None:
        sys.addaudithook(self._audit)
        for name in ("pwrite", "fsync", "fdatasync", "write"):
            setattr(os, name, self._around(getattr(os, name)))
        counter = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *more: Any) -> Any:
                is_commit = sql.startswith("COMMIT")
                if is_commit:
                    counter.tick()
                rows = super().execute(sql, *more)
                if is_commit:
                    counter.tick()
                return rows

        connect = sqlite3.connect
        sqlite3.connect = lambda *args, **more: connect(*args, **({"factory": Connection} | more))
        send, around = httpx.Client.send, self._around(httpx.Client.send)

        def counted(client: httpx.Client, request: httpx.Request, **more: Any) -> Any:
            is_submit = request.url.path == "/v1/submit_batch"
            return (around if is_submit else send)(client, request, **more)

        httpx.Client.send = counted  # type: ignore[assignment, method-assign]

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and (args[2] or 0) & _WRITING):
            self.tick()

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self.tick()
            result = function(*args, **more)
            self.tick()
            return result

        return call


def main() -> None:
    for line in sys.stdin:
        document = json.loads(line)
        child = os.fork()
        if child == 0:
            _live(document)
        print(json.dumps({"child": child}), flush=True)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"dead": code}), flush=True)


def _live(detail: dict[str, Any]) -> None:
    status = 1
    try:
        _watch_sockets(detail)
        cut = _cut(detail)
        counter = Counter(detail.get("die_at", 0), cut)
        if "die_at" in detail or detail.get("count"):
            counter.install()
        if "signal" in detail:
            status = _command(detail, counter)
            return
        around = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
        order = ImportRequest(operator=detail["operator"], media=tuple(map(Path, detail["media"])))
        with _dying(cut, detail.get("point")):
            result = run_import(load(Path(detail["settings"])), order, around, retry_policy=HASTY)
        states = [outcome.state.value for outcome in result.outcomes]
        pending = result.pending is not None
        os.write(1, json.dumps([states, pending, counter.count]).encode() + b"\n")
        status = 0
    except BaseException:  # noqa: BLE001 - told by the process that ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _command(detail: dict[str, Any], counter: Counter) -> int:
    """``veen bridge import`` as it is typed; what it says goes to the log."""
    report, log = os.dup(1), os.open(detail["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # Whoever started us in the background had it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["veen", "bridge", "import", "--config", detail["settings"]]
    sys.argv += ["--operator", detail["operator"]]
    for medium in detail["media"]:
        sys.argv += ["--medium", medium]
    try:
        main_of_veen()
    except SystemExit as ended:
        counter.die_at = 0  # it is over; a later run may have fewer operations than the first
        os.write(report, json.dumps([[], False, counter.count]).encode() + b"\n")
        return int(ended.code or 0)
    raise AssertionError("the command did not exit")


def _watch_sockets(detail: dict[str, Any]) -> None:
    """Whoever connects to anything but the zone's own hub, or asks for a name, dies of it."""
    port = int(load(Path(detail["settings"])).hub.url.rpartition(":")[2])

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.connect" and args[1][:2] != ("127.0.0.1", port):
            os.write(2, f"connects to {args[1]}\n".encode())
            os._exit(77)
        if event == "socket.getaddrinfo" and args[0] not in ("127.0.0.1", b"127.0.0.1"):
            os.write(2, f"asks for {args[0]}\n".encode())
            os._exit(78)

    sys.addaudithook(hook)


def _cut(detail: dict[str, Any]) -> Callable[[], None]:
    """How this process ends: what it has not synced goes with it, if that is asked for."""
    losses = Losses(str(Path(detail["settings"]).parent))
    if "lose" in detail:
        losses.install()

    def cut() -> None:
        if "signal" in detail:
            os.kill(os.getpid(), detail["signal"])
            return
        if "lose" in detail:
            losses.lose(detail["lose"])
        os.kill(os.getpid(), signal.SIGKILL)

    return cut


def _dying(cut: Callable[[], None], point: list[Any] | None) -> AbstractContextManager[None]:
    if point is None:
        return nullcontext()
    name, when, turn = point
    return breakpoints.AT[when](POINTS[name], cut, turn)


if __name__ == "__main__":
    main()
