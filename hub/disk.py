"""Disk space of a data directory: free bytes and inodes, and for how long they last.

The sequencer samples free space and writes it to ``run/disk.json``, so that every process of the
hub, also after a restart, knows the rate of the last day.
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
"""The shortest span of samples from which a rate is computed."""

_PROBE_BYTES: Final = 64 * 1024
_log = logging.getLogger(__name__)


class Sample(NamedTuple):
    time: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class DiskRules:
    """The hub is not ready below ``reserve_bytes``, and warns ``warn_days`` before the disk is
    full.
    """

    reserve_bytes: int
    warn_days: int


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Free space. ``days_left`` is at the rate of the last day; None if unknown or not falling."""

    free_bytes: int
    free_files: int | None
    days_left: float | None

    def shortage(self, rules: DiskRules) -> str | None:
        """The reason why free space is too low, if it is."""
        if self.free_bytes < rules.reserve_bytes:
            return (
                f"the disk has {self.free_bytes} bytes free, expected at least the "
                f"{rules.reserve_bytes} of disk_reserve_bytes: free disk space"
            )
        if self.free_files == 0:
            return "the file system has no free inode: remove files, or give it more inodes"
        return None

    def warning(self, rules: DiskRules) -> str | None:
        """The warning that the disk will be full soon, if it will."""
        if self.days_left is None or self.days_left >= rules.warn_days:
            return None
        return (
            f"the disk is full in {self.days_left:.1f} days at the rate of the last day "
            f"({self.free_bytes} bytes are free): free disk space"
        )


def disk_space(datadir: DataDir, now: int) -> DiskSpace:
    """The disk space of a data directory now."""
    volume = os.statvfs(datadir.root)
    free = volume.f_bavail * volume.f_frsize
    # File systems that allocate inodes dynamically report 0.
    files = volume.f_favail if volume.f_files else None
    return DiskSpace(free, files, days_left([*_samples(_file(datadir)), Sample(now, free)], now))


def days_left(samples: Sequence[Sample], now: int) -> float | None:
    """Days until the disk is full, at the rate since the oldest sample of the last day."""
    within = [sample for sample in samples if now - DAY_SEC <= sample.time <= now]
    if not within or within[-1].time - within[0].time < SHORTEST_SEC:
        return None
    first, last = within[0], within[-1]
    used = first.free_bytes - last.free_bytes
    if used <= 0:
        return None
    return last.free_bytes / used * (last.time - first.time) / DAY_SEC


class DiskWatch:
    """The sequencer's watch on disk space: samples, and whether the last write succeeded."""

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir
        self._sampled: int | None = None
        self.refusal: str | None = None

    def refused(self, why: str) -> None:
        """Note a write that failed for lack of space; it is logged once, until one succeeds."""
        if self.refusal is None:
            _log.error(
                "disk of %s is full: messages are refused (%s); free space, and the hub resumes by "
                "itself",
                self._datadir.root,
                why,
            )
        self.refusal = why

    def written(self) -> None:
        """Note a write that succeeded."""
        if self.refusal is not None:
            _log.warning("the disk of %s has free space again", self._datadir.root)
        self.refusal = None

    def tick(self, now: int) -> None:
        """Probe for free space after a refusal, and sample it every SAMPLE_SEC."""
        if self.refusal is not None:
            self._probe()
        if self._sampled is None or not 0 <= now - self._sampled < SAMPLE_SEC:
            self._sampled = now
            self._sample(now)

    def _probe(self) -> None:
        """Write a probe: a hub that is not ready gets no messages to try with."""
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
        samples.append(Sample(now, disk_space(self._datadir, now).free_bytes))
        try:
            durable.write(file, json.dumps(samples).encode())
        except (OSError, VeenError) as error:
            _log.debug("no sample of free space was stored: %s", error)


def _samples(file: Path) -> list[Sample]:
    """The stored samples; an unreadable file counts as empty."""
    try:
        return sorted(Sample(int(at), int(free)) for at, free in json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return []


def _file(datadir: DataDir) -> Path:
    return datadir.run / "disk.json"
