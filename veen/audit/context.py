"""The data of an audit: its context, the tasks of its chunks and their findings.

``take_inventory`` sorts the files of a log by label and kind from their names (spec 4.8.3),
``plan`` makes the tasks of a label. Tasks, contexts and findings are plain values that can be sent
to other processes.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from veen.audit.report import AuditFault
from veen.captoken import CapToken
from veen.hub_identity import HubIdentity
from veen.invariants import ClientCursor
from veen.label import DEFAULT_PROFILE, EpochLabels, Profile, routing_key
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import CheckpointRef, ChunkTally
from veen.log.entry import ControlRecord, StreamRecord
from veen.log.layout import ChunkName, OpenChunkName, parse_tombstone
from veen.mmr import Peaks

# The range around its first entry in which the epoch of a label is searched.
_RECOGNISED_SEC: Final = 86_400
_MAX_RECOGNISED_EPOCHS: Final = 256
Read = Callable[[str], bytes | None]
"""Reads a file of the log by its name; None when it does not exist."""
ANY: Final = 1 << 64
"""A bound above every stream_seq."""
_BY_SEQ: Final = re.compile(r"log/(peaks|checkpoint)-([0-9a-f]{64})-([0-9]{20})\.cbor")
_BY_RANGE: Final = re.compile(
    r"log/(?:(chunk)|leaves)-([0-9a-f]{64})-([0-9]{20})-([0-9]{20})\.(?(1)summary|bin)"
)
_INDEX: Final = re.compile(r"log/checkpoint-index-[0-9a-f]{64}\.(?:cbor|late)")


class Depth(Enum):
    """How much of each entry is checked."""

    FULL = "full"
    HASHES = "hashes"
    """All but the two signatures of each entry; other signatures are still verified."""


class LoggedControl(NamedTuple):
    """A record of the control log."""

    record: ControlRecord
    stream_seq: int
    hub_ts: int


class Capability(NamedTuple):
    token: CapToken
    issued_at: int


class KnownLabels(NamedTuple):
    """The labels of a stream, and the hub_ts since which the hub knows it."""

    labels: EpochLabels
    since: int


class LabelOrigin(NamedTuple):
    """The stream and epoch of a label."""

    labels: EpochLabels
    epoch: int
    since: int
    from_first: bool
    """Whether the stream was known when the label began."""


@dataclass(frozen=True, slots=True)
class AuditStreams:
    """The streams that a hub knows, by their labels."""

    fixed: Mapping[bytes, KnownLabels]
    """Streams without epochs, by the one label of each."""
    rolling: tuple[KnownLabels, ...]

    def origin(self, label: bytes, first_ts: int, skew_sec: int) -> LabelOrigin | None:
        """The stream and epoch of a label whose first entry has this hub_ts."""
        known = self.fixed.get(label)
        if known is not None:
            return LabelOrigin(known.labels, 0, known.since, known.since <= first_ts)
        for labels in self.rolling:
            profile = labels.labels.profile
            reach = min(_RECOGNISED_SEC, _MAX_RECOGNISED_EPOCHS * profile.epoch_sec) + skew_sec
            for epoch in profile.epochs(first_ts, reach):
                if labels.labels.at(epoch) == label:
                    return LabelOrigin(labels.labels, epoch, labels.since, labels.since <= first_ts)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every chunk is audited with: the hub, its limits, streams and capabilities."""

    hub: HubIdentity
    limits: Limits
    profiles: Mapping[bytes, Profile]
    configured: tuple[StreamRecord, ...]
    depth: Depth
    streams: AuditStreams
    capabilities: Mapping[bytes, Capability]
    rated: frozenset[bytes]
    """The capabilities that have a rate."""
    control_is_whole: bool
    """Whether every capability that was ever logged could be read."""

    def with_control_records(self, records: Iterable[LoggedControl], *, is_whole: bool) -> Context:
        """The context of all other labels, once the control label has been audited."""
        capabilities: dict[bytes, Capability] = {}
        learnt = [(record, 0) for record in self.configured]
        for logged in records:
            token = logged.record.token()
            if token is not None:
                capabilities.setdefault(token.auth_ref(), Capability(token, logged.hub_ts))
            learnt += [(stream, logged.hub_ts) for stream in logged.record.streams()]
        rated = (
            ref
            for ref, capability in capabilities.items()
            if capability.token.allow.rate is not None
        )
        return replace(
            self,
            streams=_streams(routing_key(self.hub.hub_id), learnt),
            capabilities=capabilities,
            rated=frozenset(rated),
            control_is_whole=is_whole,
        )

    def origin(self, label: bytes, first_ts: int) -> LabelOrigin | None:
        return self.streams.origin(label, first_ts, self.limits.max_epoch_skew_sec)


def begin(
    *,
    hub: HubIdentity,
    limits: Limits,
    profiles: Iterable[Profile],
    streams: Iterable[StreamRecord],
    depth: Depth,
) -> Context:
    """The context of the control label, which depends on the hub alone."""
    bare = Context(
        hub=hub,
        limits=limits,
        profiles={profile.profile_id(): profile for profile in (DEFAULT_PROFILE, *profiles)},
        configured=tuple(streams),
        depth=depth,
        streams=AuditStreams({}, ()),
        capabilities={},
        rated=frozenset(),
        control_is_whole=True,
    )
    return bare.with_control_records((), is_whole=True)


def _streams(routing: bytes, learnt: Iterable[tuple[StreamRecord, int]]) -> AuditStreams:
    """The streams of control records; a later record may add the name and the profile."""
    known: dict[bytes, StreamRecord] = {}
    since: dict[bytes, int] = {}
    fixed: dict[bytes, KnownLabels] = {}
    rolling: list[KnownLabels] = []
    for stream, hub_ts in learnt:
        name, before = stream.stream_id(), known.get(stream.stream_id())
        if before is not None and not before.is_nameless():
            continue
        known[name] = stream
        labels = KnownLabels(
            EpochLabels(routing, name, stream.profile), since.setdefault(name, hub_ts)
        )  # fmt: skip
        if before is not None and before.profile == stream.profile:
            continue
        if stream.profile.epoch_sec:
            rolling.append(labels)
        else:
            fixed[labels.labels.at(0)] = labels
    return AuditStreams(fixed, tuple(rolling))


class FindingKind(Enum):
    SEALED = "sealed"
    OPEN = "open"
    PRUNED = "pruned"
    ABSENT = "absent"
    """No chunk, only checkpoints or snapshots."""


@dataclass(frozen=True, slots=True)
class Start:
    """The state of a label before a chunk; ``peaks`` is None when unknown."""

    seen: int
    peaks: Peaks | None
    last_ts: int
    origin: LabelOrigin | None
    cursors: tuple[tuple[bytes, ClientCursor], ...] = ()
    """The cursors of clients whose first entry in the chunk does not follow their last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A chunk to audit. Without ``start`` it begins by its name and its snapshot."""

    kind: FindingKind
    segment: ChunkName | OpenChunkName
    due: frozenset[int]
    """Every stream_seq of this chunk at which a checkpoint is required."""
    claimed: frozenset[int]
    """Those of them at which a checkpoint exists or is listed."""
    snapshots: frozenset[int]
    summaries: frozenset[ChunkName]
    promised: int
    """The last stream_seq that the hub has signed in the label."""
    first_ts: int | None = None
    """The hub_ts of the first entry of the label, if known."""
    start: Start | None = None

    @property
    def label(self) -> bytes:
        return self.segment.label

    @property
    def file(self) -> str:
        if isinstance(self.segment, OpenChunkName):
            return layout.open_chunk(self.segment)
        return layout.chunk(self.segment)


class Jump(NamedTuple):
    """A gap in the client_seq of a client: a fault unless lost entries may fill it."""

    client: bytes
    first: int
    """The first missing client_seq."""
    gap: int
    since: int | None
    """The number of losses before the client's last entry in the chunk; None if it has none."""
    fault: AuditFault


class Loss(NamedTuple):
    """Lost entries whose client is unknown."""

    first: int
    entries: int


class MisplacedEntry(NamedTuple):
    """An entry out of its place, with its client and client_seq confirmed by the receipt."""

    stream_seq: int
    client: bytes
    client_seq: int


class RateUse(NamedTuple):
    """The uses of a capability with a rate in one second of hub time."""

    auth_ref: bytes
    hub_ts: int
    times: int


class Binding(NamedTuple):
    """The lines that the binding manifest may have for a checkpoint; empty when any may."""

    upto_seq: int
    lines: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFindings:
    """The result of the audit of a chunk."""

    task: Task
    start: Start
    """The state from which the chunk was audited."""
    seen: int
    last_ts: int
    peaks: Peaks | None = None
    is_confirmed: bool = False
    """Whether the first root in the chunk or a checkpoint confirms the starting peaks."""
    first_seq: int | None = None
    first_ts: int | None = None
    excused: int = 0
    """The stream_seq up to which unreadable bytes may have been the missing entries."""
    size: int = 0
    entries: int = 0
    checkpoints: int = 0
    faults: tuple[AuditFault, ...] = ()
    if_whole: tuple[AuditFault, ...] = ()
    """Faults that count when no jump is a fault; otherwise those in ``if_not`` count."""
    if_not: tuple[AuditFault, ...] = ()
    notes: tuple[str, ...] = ()
    firsts: tuple[tuple[bytes, ClientCursor], ...] = ()
    lasts: tuple[tuple[bytes, ClientCursor], ...] = ()
    gaps: tuple[Jump | Loss, ...] = ()
    after: tuple[tuple[bytes, int], ...] = ()
    """The number of losses before the last entry of a client, where there are any."""
    misplaced: tuple[MisplacedEntry, ...] = ()
    uses: tuple[RateUse, ...] = ()
    control_records: tuple[LoggedControl, ...] = ()
    refs: tuple[tuple[int, CheckpointRef], ...] = ()
    bindings: tuple[Binding, ...] = ()
    rolled: ChunkTally | None = None
    """The tally of the chunk, if it is sealed and complete."""
    first_size: int | None = None
    """The size of the first entry, if it is complete."""


@dataclass(slots=True)
class LabelStock:
    """The files of a label."""

    label: bytes
    chunks: set[ChunkName] = field(default_factory=set)
    opened: set[OpenChunkName] = field(default_factory=set)
    tombstones: set[ChunkName] = field(default_factory=set)
    summaries: set[ChunkName] = field(default_factory=set)
    leaves: set[ChunkName] = field(default_factory=set)
    peaks: set[int] = field(default_factory=set)
    checkpoints: set[int] = field(default_factory=set)

    def segments(self) -> list[ChunkName | OpenChunkName]:
        """Chunks, pruned or present, in order; of two with the same start the sealed one first."""
        names: list[ChunkName | OpenChunkName] = [*self.chunks | self.tombstones, *self.opened]
        return sorted(names, key=lambda name: (name.start_seq, len(name) == 2, name))

    def missing(self, first: int, last: int) -> list[str]:
        """The names of the missing chunks of these entries, by their summaries."""
        return missing(self.label, self.summaries, first, last)


@dataclass(slots=True)
class Stock:
    """The inventory of a log: its files by label."""

    labels: dict[bytes, LabelStock] = field(default_factory=dict)
    recorder: list[str] = field(default_factory=list)
    """Recorder checkpoints, which cover all labels."""
    unknown: list[str] = field(default_factory=list)

    def of(self, label: bytes) -> LabelStock:
        return self.labels.setdefault(label, LabelStock(label))


def missing(label: bytes, summaries: Iterable[ChunkName], first: int, last: int) -> list[str]:
    absent = sorted(summary for summary in summaries if first <= summary.start_seq <= last)
    return [layout.chunk(name) for name in absent or [ChunkName(label, first, last)]]


def take_inventory(names: Iterable[str]) -> Stock:
    """Sort names such as ``log/chunk-….log``; others go to ``unknown``."""
    inventory = Stock()
    for name in sorted(names):
        if layout.parse_recorder_checkpoint(name):
            inventory.recorder.append(name)
        elif not (_chunk(inventory, name) or _artefact(inventory, name)):
            inventory.unknown.append(name)
    return inventory


def _chunk(inventory: Stock, name: str) -> bool:
    sealed, opened = layout.parse_chunk(name), layout.parse_open_chunk(name)
    gone = parse_tombstone(name)
    if sealed is not None:
        inventory.of(sealed.label).chunks.add(sealed)
    elif opened is not None:
        inventory.of(opened.label).opened.add(opened)
    elif gone is not None:
        inventory.of(gone.label).tombstones.add(gone)
    return any((sealed, opened, gone))


def _artefact(inventory: Stock, name: str) -> bool:
    if match := _BY_SEQ.fullmatch(name):
        files = inventory.of(bytes.fromhex(match[2]))
        (files.peaks if match[1] == "peaks" else files.checkpoints).add(int(match[3]))
    elif match := _BY_RANGE.fullmatch(name):
        files = inventory.of(bytes.fromhex(match[2]))
        kind = files.summaries if match[1] else files.leaves
        kind.add(ChunkName(files.label, int(match[3]), int(match[4])))
    elif match := _INDEX.fullmatch(name):
        inventory.of(bytes.fromhex(name[21:85]))
    return match is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    """The tasks of a label in order, and what the hub has signed of it."""

    label: bytes
    tasks: tuple[Task, ...]
    claimed: frozenset[int]
    """Every stream_seq at which a checkpoint exists or is listed."""
    promised: int
    summaries: frozenset[ChunkName]

    def missing(self, first: int, last: int) -> list[str]:
        """The names of the missing chunks of these entries, by their summaries."""
        return missing(self.label, self.summaries, first, last)


def plan(
    files: LabelStock,
    listed: Collection[int],
    bound: Collection[tuple[bytes, int]],
    acknowledged: int,
) -> LabelPlan:
    """Plan the audit of a label.

    ``acknowledged`` is the last stream_seq for which a receipt is known to exist. Checkpoints
    that are both ``listed`` in the index and in the binding manifest must exist, too.
    """
    claimed = files.checkpoints | {upto for upto in listed if (files.label, upto) in bound}
    promised = max(acknowledged, *claimed, 0)
    return LabelPlan(
        label=files.label,
        tasks=tuple(_tasks(files, frozenset(claimed), promised)),
        claimed=frozenset(claimed),
        promised=promised,
        summaries=frozenset(files.summaries),
    )


def _tasks(files: LabelStock, claimed: frozenset[int], promised: int) -> Iterator[Task]:
    """The tasks of a label.

    Each artefact belongs to the chunk of its stream_seq, or the last before, so it is checked
    once even where the name of a chunk is wrong.
    """
    segments = files.segments() or [OpenChunkName(files.label, 1)]
    ends = {chunk.end_seq for chunk in files.chunks | files.tombstones}
    due, known, peaks = sorted(claimed | ends), sorted(claimed), sorted(files.peaks)
    summaries = sorted(files.summaries)
    covered = 0
    for number, segment in enumerate(segments):
        end = segment.end_seq if isinstance(segment, ChunkName) else 0
        following = segments[number + 1].start_seq - 1 if number + 1 < len(segments) else ANY
        upto = max(end, following, covered)
        begin = min(covered + 1, segment.start_seq)
        yield Task(
            kind=_kind(segment, files),
            segment=segment,
            due=frozenset(_between(due, covered, upto)),
            claimed=frozenset(_between(known, covered, upto)),
            snapshots=frozenset(_between(peaks, covered, upto)),
            summaries=frozenset(_starting(summaries, begin, upto)),
            promised=promised,
        )
        covered = upto


def _between(seqs: list[int], after: int, upto: int) -> list[int]:
    return seqs[bisect_right(seqs, after) : bisect_right(seqs, upto)]


def _starting(names: list[ChunkName], first: int, last: int) -> list[ChunkName]:
    begin = bisect_left(names, first, key=_start_seq)
    return names[begin : bisect_right(names, last, key=_start_seq)]


def _start_seq(name: ChunkName) -> int:
    return name.start_seq


def _kind(segment: ChunkName | OpenChunkName, files: LabelStock) -> FindingKind:
    if segment in files.chunks:
        return FindingKind.SEALED
    if segment in files.opened:
        return FindingKind.OPEN
    return FindingKind.PRUNED if segment in files.tombstones else FindingKind.ABSENT
