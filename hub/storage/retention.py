"""Retention: pruning old chunks without losing what they prove (spec 3.4.1).

Everything is retained unless a rule matches its stream. Streams below ``record/`` are retained
unless a rule begins with ``record/``; labels of no known stream, such as the control log, always.
A pruned chunk leaves its tombstone, leaves, summary and checkpoints, which the manifest of its
label still covers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.index import Index, LabelRow
from hub.storage.label_log import Damaged, read_peaks, whole_entries
from hub.storage.log_scan import Logged, pack_pruned
from veen.audit.context import take_inventory
from veen.checkpoint import Checkpoint
from veen.digest import h
from veen.errors import Malformed, Untrusted, VeenError
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import ChunkSummary, SegmentKey, Tombstone, manifest_root
from veen.log.entry import StreamRecord
from veen.log.layout import ChunkName, leaf_file, tombstone_file
from veen.system import durable

LONG_TERM: Final = "long_term"
_DAY_SEC: Final = 86_400
_RECORDER: Final = "record/"


class SegmentState(Enum):
    PRESENT = "present"
    PRUNED = "pruned"


@dataclass(frozen=True, slots=True)
class PrunedSegment:
    epoch: int
    start_seq: int
    end_seq: int
    state: SegmentState
    summary_hash: bytes

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self.epoch, self.start_seq, self.end_seq, self.summary_hash)


@dataclass(frozen=True, slots=True)
class RetentionManifest:
    label: bytes
    segments: tuple[PrunedSegment, ...]

    def root(self) -> bytes:
        return manifest_root(self.label, (segment.key for segment in self.segments))

    @property
    def end_seq(self) -> int:
        return self.segments[-1].end_seq if self.segments else 0


def manifest(datadir: DataDir, label: bytes) -> RetentionManifest:
    """The manifest of a label; Untrusted when a segment is missing or its artefacts disagree."""
    files = take_inventory(datadir.log_names()).of(label)
    segments: list[PrunedSegment] = []
    for name in (segment for segment in files.segments() if isinstance(segment, ChunkName)):
        expected = segments[-1].end_seq + 1 if segments else 1
        if name.start_seq != expected:
            raise Untrusted(f"label {label.hex()}: no segment holds stream_seq {expected}")
        segments.append(_segment(datadir, name))
    return RetentionManifest(label, tuple(segments))


def _segment(datadir: DataDir, name: ChunkName) -> PrunedSegment:
    """A segment by its artefacts, which must agree."""
    try:
        raw = datadir.file(layout.summary(name)).read_bytes()
        summary = ChunkSummary.decode(raw)
        end = layout.checkpoint(name.label, name.end_seq)
        checkpoint = Checkpoint.decode(datadir.file(end).read_bytes())
    except (Malformed, FileNotFoundError) as error:
        raise Untrusted(f"segment {layout.chunk(name)}: {error}") from error
    roots = {
        summary.mmr_root_end,
        checkpoint.mmr_root,
        read_peaks(datadir, name.label, name.end_seq).root(),
    }
    if ChunkName(summary.label, summary.start_seq, summary.end_seq) != name or len(roots) != 1:
        raise Untrusted(f"segment {layout.chunk(name)}: summary, peaks and checkpoint disagree")
    is_present = datadir.file(layout.chunk(name)).exists()
    state = SegmentState.PRESENT if is_present else SegmentState.PRUNED
    if state is SegmentState.PRUNED and not datadir.file(leaf_file(name)).exists():
        raise Untrusted(f"segment {layout.chunk(name)}: {leaf_file(name)} is missing")
    return PrunedSegment(checkpoint.epoch, name.start_seq, name.end_seq, state, h(raw))


@dataclass(frozen=True, slots=True)
class Rule:
    """The retention of the streams whose name matches; ``keep_days`` None is for ever."""

    pattern: str
    keep_days: int | None


class BadRetention(VeenError):
    """An invalid retention rule."""


def parse_rule(pattern: str, keep: object) -> Rule:
    """A rule of a configuration: whole days, or "long_term"."""
    if keep == LONG_TERM:
        return Rule(pattern, None)
    if type(keep) is not int or keep < 1:
        raise BadRetention(
            f"retention of {pattern!r} is {keep!r}: expected {LONG_TERM!r} or a number of days"
        )
    return Rule(pattern, keep)


def verify_long_term(rule: Rule) -> None:
    """Raise BadRetention for a rule that would prune recorder streams (SDR0 3.2.2).

    A rule applies to them only if its pattern begins with their prefix.
    """
    if rule.pattern.startswith(_RECORDER) and rule.keep_days is not None:
        raise BadRetention(
            f"retention of {rule.pattern!r} is {rule.keep_days} days, expected {LONG_TERM!r}: "
            f"streams below {_RECORDER} are the record and are never pruned; set keep_days = "
            f'"{LONG_TERM}" or remove the rule'
        )


def keep_days(stream: str, policy: Sequence[Rule]) -> int | None:
    """The days a stream is retained by the first rule that applies; None is for ever."""
    for rule in policy:
        is_explicit = not stream.startswith(_RECORDER) or rule.pattern.startswith(_RECORDER)
        if is_explicit and fnmatchcase(stream, rule.pattern):
            return rule.keep_days
    return None


def plan_retention(
    datadir: DataDir, policy: Sequence[Rule], streams: Iterable[StreamRecord], now: int
) -> list[ChunkName]:
    """The sealed chunks past their stream's retention, from the start of each label."""
    index = Index(datadir.index, writable=False)
    try:
        names = {stream_id: name for stream_id, name, _ in index.streams()}
        names |= {stream.stream_id(): stream.name for stream in streams}
        expired: list[ChunkName] = []
        for row in index.labels():
            name = names.get(row.stream_id) if row.stream_id else None
            days = keep_days(name, policy) if name else None
            if days is not None:
                expired += _expired(datadir, index, row, now - days * _DAY_SEC)
        return expired
    finally:
        index.close()


def hub_time(datadir: DataDir, clock: int) -> int:
    """The time to plan by: the clock, but not after the last entry of the log.

    A clock that is ahead would prune chunks too early, which cannot be undone.
    """
    index = Index(datadir.index, writable=False)
    try:
        latest = index.latest_label()
        return min(clock, latest.head_ts) if latest else clock
    finally:
        index.close()


def _expired(datadir: DataDir, index: Index, row: LabelRow, before: int) -> list[ChunkName]:
    expired = []
    for chunk in index.chunks_from(row.label_no, _first_present(datadir, index, row)):
        if chunk.last_ts >= before:
            break
        name = ChunkName(row.label, chunk.start_seq, chunk.end_seq)
        if datadir.file(layout.chunk(name)).exists():
            expired.append(name)
    return expired


def _first_present(datadir: DataDir, index: Index, row: LabelRow) -> int:
    """The first stream_seq that is not pruned, by bisection: a label is pruned from its start."""
    low, high = 1, row.chunk_start
    # The ends first: a label may have nothing pruned, as one to which chunks were put back by
    # hand, and one whose epoch ended long ago has nothing left.
    probes = [high - 1, 1]
    while low < high:
        middle = probes.pop() if probes else (low + high) // 2
        chunk = index.chunk_of(row.label_no, middle)
        if chunk is None:
            raise Damaged(
                f"label {row.label.hex()} has no chunk of stream_seq {middle} in the index: "
                "run `veen hub rebuild`"
            )
        name = ChunkName(row.label, chunk.start_seq, chunk.end_seq)
        if datadir.file(layout.chunk(name)).exists():
            high = chunk.start_seq
        else:
            low = chunk.end_seq + 1
    return low


def prune(
    datadir: DataDir, chunks: Iterable[ChunkName], *, limits: Limits, move_to: Path | None, now: int
) -> list[ChunkName]:
    """Remove chunks, each after all that must remain of it is durable; a hub must not run.

    Idempotent: after a crash the same plan is executed again. The cost is that of the chunks
    removed, however many the label has.
    """
    lock = DataDirLock(datadir)
    try:
        keys = identity.load(datadir)
        done = []
        for name in chunks:
            _verify_next(datadir, name)
            tombstone = _prepare_tombstone(datadir, name, limits, move_to, now)
            path = datadir.file(tombstone_file(name))
            if not path.exists():
                durable.write_once(path, tombstone.signed(keys.current).encode())
            datadir.file(layout.chunk(name)).unlink(missing_ok=True)
            durable.sync_directory(datadir.log)
            done.append(name)
        return done
    finally:
        lock.release()


def _verify_next(datadir: DataDir, name: ChunkName) -> None:
    """Raise unless this chunk is the first that is not pruned, and its artefacts agree.

    A label is pruned from its start, one chunk after another, so the chunk before this one tells
    of all of them: it must have its tombstone, its leaves and what a segment has.
    """
    _segment(datadir, name)
    if name.start_seq == 1:
        return
    before = _chunk_before(datadir, name)
    if datadir.file(layout.chunk(before)).exists():
        raise VeenError(f"{layout.chunk(before)} must be pruned before {layout.chunk(name)}")
    _segment(datadir, before)
    if not datadir.file(tombstone_file(before)).exists():
        raise Untrusted(f"segment {layout.chunk(before)}: {tombstone_file(before)} is missing")


def _chunk_before(datadir: DataDir, name: ChunkName) -> ChunkName:
    index = Index(datadir.index, writable=False)
    try:
        row = index.label(name.label)
        chunk = None if row is None else index.chunk_of(row.label_no, name.start_seq - 1)
    finally:
        index.close()
    if chunk is None:
        raise Untrusted(
            f"label {name.label.hex()}: no segment holds stream_seq {name.start_seq - 1}"
        )
    return ChunkName(name.label, chunk.start_seq, chunk.end_seq)


def _prepare_tombstone(
    datadir: DataDir, name: ChunkName, limits: Limits, move_to: Path | None, now: int
) -> Tombstone:
    """Write the leaves, and the copy if requested; the unsigned tombstone."""
    raw = datadir.file(layout.chunk(name)).read_bytes()
    summary = datadir.file(layout.summary(name)).read_bytes()
    records = pack_pruned(_logged(raw, name, limits))
    durable.write_once(datadir.file(leaf_file(name)), records)
    if move_to is not None:
        _move(raw, move_to / Path(layout.chunk(name)).name)
    return Tombstone(
        label=name.label,
        start_seq=name.start_seq,
        end_seq=name.end_seq,
        chunk_bytes=len(raw),
        chunk_sha256=h(raw),
        summary_sha256=h(summary),
        leaves_sha256=h(records),
        pruned_at=now,
        moved_to=str(move_to) if move_to else None,
    )


def _logged(raw: bytes, name: ChunkName, limits: Limits) -> list[Logged]:
    entries = list(whole_entries(raw, name.label, name.start_seq, limits))
    logged = [Logged.of(entry.opened(), entry.at) for entry in entries]
    size = sum(entry.header.whole_size for entry in entries)
    if size != len(raw) or name.start_seq + len(logged) - 1 != name.end_seq:
        raise Damaged(f"{layout.chunk(name)} is incomplete: run `veen hub verify`")
    return logged


def _move(raw: bytes, target: Path) -> None:
    durable.make_directory(target.parent)
    durable.write_once(target, raw)
    handle = os.open(target, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    if target.read_bytes() != raw:
        raise VeenError(
            f"{target} reads back with other bytes than were written; nothing was removed"
        )
