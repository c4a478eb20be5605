"""The room on the volume of a data directory: what is free, and how long it lasts.

Free space is sampled by the sequencer and written to ``run/disk.json``, so that every process of
the hub, and the next one after a restart, knows the rate of the last day.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from hub.storage.datadir import DataDir
from veen.errors import VeenError
from veen.system import durable

DAY_SEC: Final = 86_400
SAMPLE_SEC: Final = 600
SHORTEST_SEC: Final = 3_600
"""A rate over less time than this says nothing about a day."""

_PROBE_BYTES: Final = 64 * 1024
_log = logging.getLogger(__name__)


class Sample(NamedTuple):
    time: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class DiskRules:
    """``reserve_bytes`` of free space below which a hub is not ready, ``warn_days`` before it is
    used up from which on it warns.
    """

    reserve_bytes: int
    warn_days: int


@dataclass(frozen=True, slots=True)
class Room:
    """``days_left`` at the rate of the last day; None where nothing is used up, or not known."""

    free_bytes: int
    free_files: int | None
    days_left: float | None

    def shortage(self, rules: DiskRules) -> str | None:
        """Why there is too little of it."""
        if self.free_bytes < rules.reserve_bytes:
            return (
                f"the disk has {self.free_bytes} bytes free, expected at least the "
                f"{rules.reserve_bytes} of disk_reserve_bytes: make room"
            )
        if self.free_files == 0:
            return "the file system has no free inode: remove files, or give it more inodes"
        return None

    def warning(self, rules: DiskRules) -> str | None:
        """What is going to be too little soon."""
        if self.days_left is None or self.days_left >= rules.warn_days:
            return None
        return (
            f"the disk is full in {self.days_left:.1f} days at the rate of the last day "
            f"({self.free_bytes} bytes are free): make room"
        )


def room(datadir: DataDir, now: int) -> Room:
    """As it is now."""
    result = os.statvfs(datadir.root)
    free = result.f_bavail * result.f_frsize
    # File systems that make inodes as they need them tell of none.
    files = result.f_favail if result.f_files else None
    return Room(free, files, days_left([*_samples(_file(datadir)), Sample(now, free)], now))


def days_left(samples: Sequence[Sample], now: int) -> float | None:
    """How long what is free lasts, by how much of it went since the oldest sample of a day."""
    within = [sample for sample in samples if now - DAY_SEC <= sample.time <= now]
    if not within or within[-1].time - within[0].time < SHORTEST_SEC:
        return None
    first, last = within[0], within[-1]
    used = first.free_bytes - last.free_bytes
    if used <= 0:
        return None
    return last.free_bytes / used * (last.time - first.time) / DAY_SEC


class DiskWatch:
    """By the sequencer: samples of what is free, and whether the last write found room."""

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir
        self._sampled: int | None = None
        self.refusal: str | None = None

    def refused(self, why: str) -> None:
        """A write found no room; this is logged once, until there is room again."""
        if self.refusal is None:
            _log.error(
                "no room on the disk of %s: messages are refused (%s); make room, the hub goes on "
                "by itself",
                self._datadir.root,
                why,
            )
        self.refusal = why

    def written(self) -> None:
        """A write found room."""
        if self.refusal is not None:
            _log.warning("there is room again on the disk of %s", self._datadir.root)
        self.refusal = None

    def tick(self, now: int) -> None:
        """Try whether there is room again, and take a sample when one is due."""
        if self.refusal is not None:
            self._try()
        if self._sampled is None or not 0 <= now - self._sampled < SAMPLE_SEC:
            self._sampled = now
            self._sample(now)

    def _try(self) -> None:
        """Nobody sends to a hub that is not ready, so it has to find out by itself."""
        probe = self._datadir.run / "disk.probe"
        try:
            durable.write(probe, bytes(_PROBE_BYTES))
        except (OSError, VeenError):
            return
        finally:
            probe.unlink(missing_ok=True)
        self.written()

    def _sample(self, now: int) -> None:
        file = _file(self._datadir)
        samples = [sample for sample in _samples(file) if now - DAY_SEC <= sample.time < now]
        samples.append(Sample(now, room(self._datadir, now).free_bytes))
        try:
            durable.write(file, json.dumps(samples).encode())
        except (OSError, VeenError) as error:
            _log.debug("no sample of free space is kept: %s", error)


def _samples(file: Path) -> list[Sample]:
    """Those that were kept; scratch, so what cannot be read is as if it were not there."""
    try:
        return sorted(Sample(int(at), int(free)) for at, free in json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return []


def _file(datadir: DataDir) -> Path:
    return datadir.run / "disk.json"
