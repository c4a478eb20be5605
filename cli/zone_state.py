"""What the supervisor of a zone tells of itself: which processes run, and how far it has come."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from cli.failure import Refused
from cli.zone_home import ZoneHome
from cli.zone_process import Born, boot_id
from veen import durable, zone_parts

_MOST_LINES: Final = 200


class Stage(Enum):
    STARTING = "starting"
    UP = "up"
    FAILED = "failed"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Running:
    """A part of the zone with its latest process, and the file that holds what it says.

    ``is_ready`` is whether that process has answered as it should; ``restarts`` counts how often
    it was started again; ``is_failing`` says that this did not help; ``trouble`` is the last end.
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
    """A part that has no process because each attempt to start it has failed."""

    name: str
    is_failing: bool
    trouble: str

    def wrong(self) -> str:
        return f"{self.name} is {'failing' if self.is_failing else 'not ready'}: {self.trouble}"


@dataclass(frozen=True, slots=True)
class State:
    """``told`` are the latest steps, in words; the last one says why where it failed.

    ``run`` marks the processes of this run in their environment; ``waiting`` are the parts that
    were not started yet, because what they need is not up; ``unstarted`` those that could not be.
    """

    stage: Stage
    supervisor: Born | None = None
    running: tuple[Running, ...] = ()
    told: tuple[str, ...] = ()
    run: str | None = None
    waiting: tuple[str, ...] = ()
    unstarted: tuple[Unstarted, ...] = ()

    def trouble(self) -> tuple[str, ...]:
        """What is wrong with the parts by what their supervisor has seen of them."""
        waiting = (f"{one} waits for what it needs" for one in self.waiting)
        unstarted = (one.wrong() for one in self.unstarted)
        return (*(line for one in self.running for line in one.wrong()), *unstarted, *waiting)

    def and_told(self, line: str) -> State:
        return replace(self, told=(*self.told, line)[-_MOST_LINES:])


DOWN = State(Stage.DOWN)


def read(home: ZoneHome) -> State:
    try:
        found = json.loads(_file(home).read_bytes())
    except FileNotFoundError:
        return DOWN
    # A file of an earlier version has no boot id. Whoever holds the lock runs in this boot.
    unknown = None if _has_boot(found) or not is_held(home) else boot_id()
    supervisor = found["supervisor"]
    return State(
        Stage(found["stage"]),
        _born(supervisor, unknown) if supervisor else None,
        tuple(
            Running(**{**one, "process": _born(one["process"], unknown)})
            for one in found["running"]
        ),
        tuple(found["told"]),
        found.get("run"),
        tuple(found.get("waiting", ())),
        tuple(Unstarted(**one) for one in found.get("unstarted", ())),
    )


def write(home: ZoneHome, state: State) -> None:
    document = asdict(state) | {"stage": state.stage.value}
    durable.write(_file(home), json.dumps(document, indent=1).encode() + b"\n")


@contextmanager
def held(home: ZoneHome) -> Iterator[None]:
    """The zone is run by one supervisor; the lock ends with its process, however that ends."""
    durable.make_directory(home.run)
    handle = os.open(_lock(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, durable.FILE_MODE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Refused(f"{home.root} is up already; see veen zone status") from None
    try:
        yield
    finally:
        os.close(handle)


def is_held(home: ZoneHome) -> bool:
    if not _lock(home).exists():
        return False
    try:
        with held(home):
            return False
    except Refused:
        return True


def _has_boot(found: dict[str, Any]) -> bool:
    return bool((found["supervisor"] or {}).get("boot"))


def _born(found: dict[str, Any], unknown: str | None) -> Born:
    return Born(found["pid"], found["born"], found.get("boot") or unknown)


def _file(home: ZoneHome) -> Path:
    return home.root / zone_parts.FILE


def _lock(home: ZoneHome) -> Path:
    return home.run / "lock"
