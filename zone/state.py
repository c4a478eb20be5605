"""Child processes of a zone's supervisor, and the state file in which it reports them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from veen.errors import LATER_RELEASE, Refused
from veen.system import durable, filelock, zone_parts
from veen.system.child_process import Born, boot_id, end_with_parent
from zone.directory import ZoneHome
from zone.services import ZoneService

_VERSION: Final = 1
_STOP_SEC: Final = 20.0
_log = logging.getLogger(__name__)
_MOST_LINES: Final = 200


class Child(NamedTuple):
    service: ZoneService
    process: subprocess.Popen[bytes]


def start(
    service: ZoneService, home: ZoneHome, environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, which ends when the supervisor ends."""
    output = _output(log)
    try:
        return subprocess.Popen(  # noqa: S603 - our own programs
            service.command,
            env={**environment, **service.more},
            cwd=home.postgres if service.user else home.root,
            user=service.user,
            group=service.user,
            extra_groups=None if service.user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - there is one thread
        )
    finally:
        os.close(output)


def stop(group: Sequence[Child]) -> None:
    """Stop processes together; those that do not end in time are killed."""
    for service, process in group:
        if process.poll() is None:
            process.send_signal(service.stop)
    deadline = time.monotonic() + _STOP_SEC
    for service, process in group:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _log.warning("%s did not end within %.0f s and is killed", service.name, _STOP_SEC)
            process.kill()
            process.wait()


def _output(log: Path) -> int:
    """The log file, or /dev/null: a full disk must not keep a part from starting."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(log, flags, 0o600)
    except OSError as error:
        _log.warning("%s cannot be opened, its output is dropped: %s", log, error.strerror)
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class ZoneStage(Enum):
    STARTING = "starting"
    UP = "up"
    FAILED = "failed"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Running:
    """A part of the zone with its latest process and log file.

    ``is_ready`` is whether that process answered its probe; ``restarts`` counts its restarts;
    ``is_failing`` is whether they did not help; ``trouble`` describes its last end.
    """

    name: str
    process: Born
    log: str
    is_ready: bool = False
    restarts: int = 0
    is_failing: bool = False
    trouble: str = ""

    def wrong(self) -> Iterator[str]:
        if self.is_failing:
            yield f"{self.name} is failing, restarted {self.restarts} times: {self.trouble}"
        elif not self.is_ready:
            yield f"{self.name} is not ready" + (f": {self.trouble}" if self.trouble else "")


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A part without a process because each attempt to start it failed."""

    name: str
    is_failing: bool
    trouble: str

    def wrong(self) -> str:
        return f"{self.name} is {'failing' if self.is_failing else 'not ready'}: {self.trouble}"


@dataclass(frozen=True, slots=True)
class ZoneState:
    """The state of a zone. ``detail`` are the latest steps as text; after a failure the last line
    is the reason.

    ``run`` marks the processes of this run in their environment; ``waiting`` are parts that are
    not started yet because what they need is not up; ``unstarted`` are parts that failed to start.
    """

    stage: ZoneStage
    supervisor: Born | None = None
    running: tuple[Running, ...] = ()
    detail: tuple[str, ...] = ()
    run: str | None = None
    waiting: tuple[str, ...] = ()
    unstarted: tuple[Unstarted, ...] = ()

    def trouble(self) -> tuple[str, ...]:
        """The problems of the parts, as seen by their supervisor."""
        waiting = (f"{item} waits for what it needs" for item in self.waiting)
        unstarted = (unstarted.wrong() for unstarted in self.unstarted)
        return (
            *(line for running in self.running for line in running.wrong()),
            *unstarted,
            *waiting,
        )

    def awaited(self) -> str:
        """What the start of the zone waits for: parts with their logs, and those behind them."""
        parts = [f"{part.name} (log: {part.log})" for part in self.running if not part.is_ready]
        parts += [f"{part.name} ({part.trouble})" for part in self.unstarted]
        line = f"waiting for {', '.join(parts) or 'the supervisor'}"
        return f"{line}; then {', '.join(self.waiting)}" if self.waiting else line

    def with_line(self, line: str) -> ZoneState:
        return replace(self, detail=(*self.detail, line)[-_MOST_LINES:])


DOWN = ZoneState(ZoneStage.DOWN)


def read(home: ZoneHome) -> ZoneState:
    try:
        document = json.loads(_file(home).read_bytes())
    except FileNotFoundError:
        return DOWN
    if document.get("version", 0) > _VERSION:
        raise Refused(
            f"{_file(home)}: expected version {_VERSION} or older, got {document['version']}: "
            f"{LATER_RELEASE}"
        )
    # A file of version 0 has no boot id. The holder of the lock runs in this boot.
    unknown = None if _has_boot(document) or not is_held(home) else boot_id()
    supervisor = document["supervisor"]
    return ZoneState(
        ZoneStage(document["stage"]),
        _born(supervisor, unknown) if supervisor else None,
        tuple(
            Running(**{**item, "process": _born(item["process"], unknown)})
            for item in document["running"]
        ),
        tuple(document["detail"] if "detail" in document else document["told"]),
        document.get("run"),
        tuple(document.get("waiting", ())),
        tuple(Unstarted(**item) for item in document.get("unstarted", ())),
    )


def write(home: ZoneHome, state: ZoneState) -> None:
    document = {"version": _VERSION} | asdict(state) | {"stage": state.stage.value}
    durable.write(_file(home), json.dumps(document, indent=1).encode() + b"\n")


@contextmanager
def held(home: ZoneHome) -> Iterator[None]:
    """Hold the lock of a zone's supervisor, which is released when its process ends."""
    durable.make_directory(home.run)
    busy = Refused(f"{home.root} is up already; see veen zone status")
    with filelock.locked(_lock(home), busy=busy):
        yield


def is_held(home: ZoneHome) -> bool:
    return filelock.is_locked(_lock(home))


def _has_boot(document: dict[str, Any]) -> bool:
    return bool((document["supervisor"] or {}).get("boot"))


def _born(document: dict[str, Any], unknown: str | None) -> Born:
    return Born(document["pid"], document["born"], document.get("boot") or unknown)


def _file(home: ZoneHome) -> Path:
    return home.root / zone_parts.FILE


def _lock(home: ZoneHome) -> Path:
    return home.run / "lock"
