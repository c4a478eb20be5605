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

from cli.failure import Refused
from cli.zone_home import ZoneHome
from cli.zone_process import Born
from veen import durable


class Stage(Enum):
    STARTING = "starting"
    UP = "up"
    FAILED = "failed"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Running:
    """A process of the zone, and the file that holds what it says."""

    name: str
    process: Born
    log: str


@dataclass(frozen=True, slots=True)
class State:
    """``told`` are the steps so far, in words; the last one says why where it failed."""

    stage: Stage
    supervisor: Born | None = None
    running: tuple[Running, ...] = ()
    told: tuple[str, ...] = ()

    def and_told(self, line: str) -> State:
        return replace(self, told=(*self.told, line))


DOWN = State(Stage.DOWN)


def read(home: ZoneHome) -> State:
    try:
        found = json.loads(_file(home).read_bytes())
    except FileNotFoundError:
        return DOWN
    supervisor = found["supervisor"]
    return State(
        Stage(found["stage"]),
        Born(**supervisor) if supervisor else None,
        tuple(Running(one["name"], Born(**one["process"]), one["log"]) for one in found["running"]),
        tuple(found["told"]),
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


def _file(home: ZoneHome) -> Path:
    return home.run / "state.json"


def _lock(home: ZoneHome) -> Path:
    return home.run / "lock"
