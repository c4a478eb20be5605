"""Retention: which chunks may go, and taking them away without losing what they prove (3.4.1).

Everything is kept unless a rule names its stream. ``record/`` streams are kept unless a rule
begins with ``record/``, and labels of no known stream, the control log among them, always.

The manifest of a label in a data directory: complete or not, without reading its segments.
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
from veen.audit.context import LabelStock, take_inventory
from veen.checkpoint import Checkpoint
from veen.digest import h
from veen.errors import Malformed, Untrusted, VeenError
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import ChunkSummary, SegmentKey, Tombstone, manifest_root
from veen.log.entry import StreamRecord
from veen.log.layout import ChunkName, leaf_file, tombstone_file
from veen.system import durable


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
        due = segments[-1].end_seq + 1 if segments else 1
        if name.start_seq != due:
            raise Untrusted(f"label {label.hex()}: no segment holds stream_seq {due}")
        segments.append(_segment(datadir, files, name))
    return RetentionManifest(label, tuple(segments))


def _segment(datadir: DataDir, files: LabelStock, name: ChunkName) -> PrunedSegment:
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
    state = SegmentState.PRESENT if name in files.chunks else SegmentState.PRUNED
    if state is SegmentState.PRUNED and name not in files.leaves:
        raise Untrusted(f"segment {layout.chunk(name)}: {leaf_file(name)} is missing")
    return PrunedSegment(checkpoint.epoch, name.start_seq, name.end_seq, state, h(raw))


LONG_TERM: Final = "long_term"
_DAY_SEC: Final = 86_400
_RECORDER: Final = "record/"


@dataclass(frozen=True, slots=True)
class Rule:
    """How long the streams whose name matches are kept; None is for ever."""

    pattern: str
    keep_days: int | None


class BadRetention(VeenError):
    """A retention rule that says nothing sensible."""


def parse_rule(pattern: str, keep: object) -> Rule:
    """A rule as a configuration writes it: days as a whole number, or "long_term"."""
    if keep == LONG_TERM:
        return Rule(pattern, None)
    if type(keep) is not int or keep < 1:
        raise BadRetention(
            f"retention of {pattern!r} is {LONG_TERM!r} or a number of days, not {keep!r}"
        )
    return Rule(pattern, keep)


def refuse_forgetting(rule: Rule) -> None:
    """Recorder streams are kept long term, and no configuration may say otherwise (SDR0 3.2.2).

    A rule speaks of them only if its pattern begins with their prefix.
    """
    if rule.pattern.startswith(_RECORDER) and rule.keep_days is not None:
        raise BadRetention(
            f"retention of {rule.pattern!r} is {rule.keep_days} days, expected {LONG_TERM!r}: "
            f"streams below {_RECORDER} are the record and are never pruned; set keep_days = "
            f'"{LONG_TERM}" or remove the rule'
        )


def keep_days(stream: str, policy: Sequence[Rule]) -> int | None:
    """The first rule that speaks of a stream decides; None is for ever."""
    for rule in policy:
        is_explicit = not stream.startswith(_RECORDER) or rule.pattern.startswith(_RECORDER)
        if is_explicit and fnmatchcase(stream, rule.pattern):
            return rule.keep_days
    return None


def plan_retention(
    datadir: DataDir, policy: Sequence[Rule], streams: Iterable[StreamRecord], now: int
) -> list[ChunkName]:
    """Sealed chunks wholly older than their stream is kept, from the start of each label."""
    index = Index(datadir.index, writable=False)
    try:
        names = {stream_id: name for stream_id, name, _ in index.streams()}
        names |= {stream.stream_id(): stream.name for stream in streams}
        result: list[ChunkName] = []
        for row in index.labels():
            name = names.get(row.stream_id) if row.stream_id else None
            days = keep_days(name, policy) if name else None
            if days is not None:
                result += _expired(datadir, index, row, now - days * _DAY_SEC)
        return result
    finally:
        index.close()


def hub_time(datadir: DataDir, clock: int) -> int:
    """The time to plan by: the clock, but no later than the log has come.

    By a clock that is ahead, chunks would go before their time, and nothing brings them back.
    """
    index = Index(datadir.index, writable=False)
    try:
        return min(clock, max((row.head_ts for row in index.labels()), default=clock))
    finally:
        index.close()


def _expired(datadir: DataDir, index: Index, row: LabelRow, before: int) -> list[ChunkName]:
    result = []
    for chunk in index.chunks(row.label_no):
        if chunk.last_ts >= before:
            break
        name = ChunkName(row.label, chunk.start_seq, chunk.end_seq)
        if datadir.file(layout.chunk(name)).exists():
            result.append(name)
    return result


def prune(
    datadir: DataDir, chunks: Iterable[ChunkName], *, limits: Limits, move_to: Path | None, now: int
) -> list[ChunkName]:
    """Take chunks away, each only once all that must stay of it is on disk. Refused beside a hub.

    After a crash the same plan is simply carried out again.
    """
    lock = DataDirLock(datadir)
    try:
        keys = identity.load(datadir)
        done = []
        for name in chunks:
            _refuse_hole(datadir, name)
            tombstone = _bury(datadir, name, limits, move_to, now)
            path = datadir.file(tombstone_file(name))
            if not path.exists():
                durable.write_once(path, tombstone.signed(keys.current).encode())
            datadir.file(layout.chunk(name)).unlink(missing_ok=True)
            durable.sync_directory(datadir.log)
            done.append(name)
        return done
    finally:
        lock.release()


def _refuse_hole(datadir: DataDir, name: ChunkName) -> None:
    """What remains of a label must be one run: chunks go from its start."""
    for segment in manifest(datadir, name.label).segments:
        before = ChunkName(name.label, segment.start_seq, segment.end_seq)
        if before.start_seq < name.start_seq and datadir.file(layout.chunk(before)).exists():
            raise VeenError(f"{layout.chunk(before)} stands before {layout.chunk(name)}")


def _bury(
    datadir: DataDir, name: ChunkName, limits: Limits, move_to: Path | None, now: int
) -> Tombstone:
    """Write the leaves, and the copy if there is to be one; what the tombstone has to say."""
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
    located_entries = list(whole_entries(raw, name.label, name.start_seq, limits))
    logged = [
        Logged.of(located_entry.opened(), located_entry.at) for located_entry in located_entries
    ]
    size = sum(located_entry.header.whole_size for located_entry in located_entries)
    if size != len(raw) or name.start_seq + len(logged) - 1 != name.end_seq:
        raise Damaged(f"{layout.chunk(name)} is not whole: run `veen hub verify`")
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
        raise VeenError(f"{target} does not read back as it was written; nothing was removed")
