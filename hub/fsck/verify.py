"""The check of a whole data directory: the audit of its log, and what the hub keeps beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hub.fsck.derived import DerivedCheck
from hub.fsck.keys import check_private_keys
from hub.fsck.run import Runner, read_file
from hub.storage.compare import acknowledged
from hub.storage.contradictions import kept_checkpoints
from hub.storage.datadir import DataDir, Lock
from veen import layout
from veen.audit.context import Depth, begin
from veen.audit.engine import Crew, Log, audit_log
from veen.audit.findings import ChunkFindings, Kind
from veen.audit.report import Report
from veen.audit.stock import take_stock
from veen.audit.trust import TrustCheck
from veen.control import StreamRecord
from veen.errors import VeenError
from veen.limits import Limits
from veen.profile import Profile

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    limits: Limits
    profiles: tuple[Profile, ...]
    streams: tuple[StreamRecord, ...]
    progress: Progress
    workers: int
    depth: Depth


def verify(
    datadir: DataDir,
    *,
    limits: Limits,
    profiles: Iterable[Profile],
    streams: Iterable[StreamRecord],
    progress: Progress,
    workers: int = 1,
) -> Report:
    """Check everything and report everything. A directory that a hub holds is refused."""
    terms = _Terms(
        limits=limits, profiles=tuple(profiles), streams=tuple(streams),
        progress=progress, workers=workers, depth=Depth.FULL,
    )  # fmt: skip
    return _verify(datadir, terms)


def verify_hashes(
    datadir: DataDir,
    *,
    limits: Limits,
    profiles: Iterable[Profile],
    streams: Iterable[StreamRecord],
    progress: Progress,
    workers: int = 1,
) -> Report:
    """The same without the two signatures of each entry."""
    terms = _Terms(
        limits=limits, profiles=tuple(profiles), streams=tuple(streams),
        progress=progress, workers=workers, depth=Depth.HASHES,
    )  # fmt: skip
    return _verify(datadir, terms)


def _verify(datadir: DataDir, terms: _Terms) -> Report:
    if not datadir.log.is_dir():
        raise VeenError(f"{datadir.root} is not a data directory: it has no log")
    lock = Lock(datadir)
    try:
        with tempfile.TemporaryDirectory(prefix="veen-verify-") as scratch:
            return _audit(datadir, terms, Path(scratch) / "index.sqlite")
    finally:
        lock.release()


def _audit(datadir: DataDir, terms: _Terms, fresh: Path) -> Report:
    read, trust = partial(read_file, datadir), TrustCheck()
    hub = trust.read_hub(read)
    for name, place in kept_checkpoints(datadir):
        what = f"contradicts the log at {place.upto_seq}, and this hub signed it; kept as evidence"
        trust.notes.append(f"evidence/{name}: {what}")
    stock = take_stock(datadir.log_names() + datadir.recorder_names())
    context = begin(
        hub=hub,
        limits=terms.limits,
        profiles=terms.profiles,
        streams=terms.streams,
        depth=terms.depth,
    )
    derived = DerivedCheck(datadir, stock, hub.hub_id, terms.limits, terms.streams, fresh)
    runner = Runner(datadir, terms.workers)
    told = _Told(terms.progress, _chunk_bytes(datadir))
    times = [0]

    def watch(found: ChunkFindings) -> None:
        derived.take(found, runner.entries_of(found))
        told.take(found)
        times.append(found.last_ts)

    log = Log(stock=stock, read=read, acknowledged=acknowledged(datadir.index))
    found = audit_log(log, context, Crew(runner.run, runner.again), watch)
    stale = derived.finish(found.faulty())
    check_private_keys(datadir, hub, trust, max(times))
    return found.report(trust.faults, trust.notes, stale)


class _Told:
    """How far the check has come, in bytes of chunks."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        progress(0, total)

    def take(self, found: ChunkFindings) -> None:
        if found.task.kind in (Kind.SEALED, Kind.OPEN):
            self._done += found.size
            self._progress(self._done, self._total)


def _chunk_bytes(datadir: DataDir) -> int:
    return sum(
        path.stat().st_size
        for path in datadir.log.iterdir()
        if layout.parse_chunk(f"log/{path.name}") or layout.parse_open_chunk(f"log/{path.name}")
    )
