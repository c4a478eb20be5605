"""What became of a carrier: the states of the airlock, and what a run tells of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """How far a carrier has come; those from IMPORTED on are where it stays.

    REFUSED is a medium of which nothing was taken.
    """

    REFUSED = "refused"
    INCOMPLETE = "incomplete"
    WAITING = "waiting"
    BLOCKED = "blocked"
    FROZEN = "frozen"
    COMMITTING = "committing"
    PARTIAL = "partial"
    IMPORTED = "imported"
    HEARTBEAT = "heartbeat"
    DUPLICATE = "duplicate"
    QUARANTINED = "quarantined"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``told`` says why, and what to do next where something is to be done; ``place`` is where the
    carrier lies, of those that did not go in.
    """

    state: State
    name: str
    bundle_id: bytes | None = None
    stream: str = ""
    from_seq: int = 0
    to_seq: int = 0
    imported: int = 0
    duplicates: int = 0
    excluded: int = 0
    code: str = ""
    told: str = ""
    place: str = ""
