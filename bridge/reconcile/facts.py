"""What is known of a bridge, wherever it was learned: the facts of a reconciliation (AGB0 4.7).

Facts are sorted and told apart by what they say alone, so that the same facts, in any order and
however often they were collected, lead to the same report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Held(Enum):
    """What stands in an import stream for an event."""

    IMPORTED = "imported"
    EXCLUDED = "excluded"
    """A placeholder, by the zone's policy."""
    UNSEEN = "unseen"
    """Written, but the last event of its bundle is not, so no reader counts it."""


class State(Enum):
    """What the importing side last said of a bundle."""

    IMPORTED = "imported"
    PARTIAL = "partial"
    WAITING = "waiting"
    QUARANTINED = "quarantined"


class Export(NamedTuple):
    """A bundle that was exported; ``root`` is that of the stream at ``last``, where it is told.

    ``told_by`` is ``bundle``, ``audit`` or ``ledger``.
    """

    hub_id: bytes
    stream: str
    first: int
    last: int
    bundle_id: bytes
    told_by: str
    root: bytes = b""


class Import(NamedTuple):
    """Events that stand one after another in an import stream, as they did at their origin.

    Times are the origin hub's, of the first and the last. ``root`` is that of the origin's stream
    at ``last``, by the last receipt, or empty.
    """

    hub_id: bytes
    stream: str
    first: int
    last: int
    bundle_id: bytes
    held: Held
    target: str
    target_first: int
    time_first: int
    time_last: int
    root: bytes = b""


class Standing(NamedTuple):
    """A state of a bundle; the one with the greatest ``at`` holds, but for a success, which stays.

    A bundle that was refused before it could be read has only its claimed id, and ``first`` is 0.
    ``at`` is 0 for what a carrier that was refused claims to hold: any other word outweighs it.
    """

    bundle_id: bytes
    at: int
    state: State
    hub_id: bytes = b""
    stream: str = ""
    first: int = 0
    last: int = 0


class Repeat(NamedTuple):
    """A bundle that was presented again and not imported again; ``at`` tells repeats apart."""

    bundle_id: bytes
    at: int


class Entry(NamedTuple):
    """An entry of an exporter's ledger; a heartbeat has an empty ``bundle_id``."""

    bridge_id: bytes
    n: int
    prev: bytes
    entry_hash: bytes
    bundle_id: bytes


class Fork(NamedTuple):
    """The audit of a fork: the hub signed two histories of the stream."""

    hub_id: bytes
    stream: str
    seq: int


class Stranger(NamedTuple):
    """A message in an import stream that is no imported event, or in an audit log no entry."""

    target: str
    seq: int


class Route(NamedTuple):
    """A stream that should cross, by the settings."""

    hub_id: bytes
    stream: str
    target: str


class End(NamedTuple):
    """How far a stream goes by a checkpoint."""

    stream: str
    last: int
    root: bytes


class Checkpoint(NamedTuple):
    hub_id: bytes
    checkpoint_id: bytes
    created_at: int
    log_root: bytes
    ends: tuple[End, ...]

    def end(self, stream: str) -> End | None:
        return next((one for one in self.ends if one.stream == stream), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """``sources`` are the checkpoints C1, at most one for a hub; ``target`` is C2 (K2)."""

    exports: Iterable[Export] = ()
    imports: Iterable[Import] = ()
    standings: Iterable[Standing] = ()
    repeats: Iterable[Repeat] = ()
    entries: Iterable[Entry] = ()
    forks: Iterable[Fork] = ()
    routes: Iterable[Route] = ()
    strangers: Iterable[Stranger] = ()
    sources: tuple[Checkpoint, ...] = ()
    target: Checkpoint | None = None
