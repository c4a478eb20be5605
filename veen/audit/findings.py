"""What is asked of the audit of one chunk, and what it answers; all of it travels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from veen import layout
from veen.audit.context import Origin, Told
from veen.audit.report import Fault
from veen.checkpoint_index import CheckpointRef
from veen.chunk import Tally
from veen.invariants import ClientCursor
from veen.layout import ChunkName, OpenChunkName
from veen.mmr import Peaks

Read = Callable[[str], bytes | None]
"""The bytes of a file of the log by its name, or None when there is none."""
ANY: Final = 1 << 64
"""Beyond every stream_seq."""


class Kind(Enum):
    SEALED = "sealed"
    OPEN = "open"
    PRUNED = "pruned"
    ABSENT = "absent"
    """No chunk at all: only what stands beside one."""


@dataclass(frozen=True, slots=True)
class Start:
    """The state of a label just before a chunk; ``peaks`` is None when it is unknown."""

    seen: int
    peaks: Peaks | None
    last_ts: int
    origin: Origin | None
    cursors: tuple[tuple[bytes, ClientCursor], ...] = ()
    """Of the clients whose first entry in the chunk does not follow their last before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One chunk to audit. Without ``start`` it begins where its name and its snapshot say."""

    kind: Kind
    segment: ChunkName | OpenChunkName
    due: frozenset[int]
    """Every stream_seq of this chunk at which a checkpoint must stand, if it gets there."""
    claimed: frozenset[int]
    """Those of them at which one stands, or is said to."""
    snapshots: frozenset[int]
    summaries: frozenset[ChunkName]
    promised: int
    """The last stream_seq that the hub has vouched for in the label."""
    first_ts: int | None = None
    """The hub_ts of the first entry of the label, where it is known."""
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
    """A client whose numbers leave a gap: a fault, unless entries that were lost may fill it."""

    client: bytes
    first: int
    """The first number that is not there."""
    gap: int
    since: int | None
    """How many losses of the chunk came before the client's last entry; None if it has none."""
    fault: Fault


class Loss(NamedTuple):
    """Entries of which no client is known."""

    first: int
    entries: int


class Stray(NamedTuple):
    """An entry that stands out of its place, and whose number it is by the hub's receipt."""

    stream_seq: int
    client: bytes
    client_seq: int


class Use(NamedTuple):
    """How often a capability with a rate was used in one second of hub time."""

    auth_ref: bytes
    hub_ts: int
    times: int


class Binding(NamedTuple):
    """The lines that the binding manifest may hold for one checkpoint; none when any may stand."""

    upto_seq: int
    lines: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFindings:
    task: Task
    start: Start
    """What the chunk was audited from."""
    seen: int
    last_ts: int
    peaks: Peaks | None = None
    is_confirmed: bool = False
    """Whether the first root in the chunk bears the starting peaks out, or a checkpoint does."""
    first_seq: int | None = None
    first_ts: int | None = None
    excused: int = 0
    """Up to where bytes that nobody can read may have been the entries that are missing."""
    size: int = 0
    entries: int = 0
    checkpoints: int = 0
    faults: tuple[Fault, ...] = ()
    if_whole: tuple[Fault, ...] = ()
    """Faults that hold when no jump turns out to be one, and in the other case ``if_not``."""
    if_not: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    firsts: tuple[tuple[bytes, ClientCursor], ...] = ()
    lasts: tuple[tuple[bytes, ClientCursor], ...] = ()
    gaps: tuple[Jump | Loss, ...] = ()
    after: tuple[tuple[bytes, int], ...] = ()
    """How many losses of the chunk came before the last entry of a client; else none did."""
    strays: tuple[Stray, ...] = ()
    uses: tuple[Use, ...] = ()
    told: tuple[Told, ...] = ()
    refs: tuple[tuple[int, CheckpointRef], ...] = ()
    bindings: tuple[Binding, ...] = ()
    rolled: Tally | None = None
    """What was in it, when it is sealed and whole."""
    first_size: int | None = None
    """The size of its first entry, when that is whole."""
