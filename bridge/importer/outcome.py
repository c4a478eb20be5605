"""What became of a carrier: the states of the airlock, and what a run tells of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from bridge.carrier.age import too_old


class State(Enum):
    """How far a carrier has come; those from IMPORTED on are where it stays.

    REFUSED is a medium of which nothing was taken. RELEASED lies in the inbox again, and was in
    quarantine before.
    """

    REFUSED = "refused"
    RELEASED = "released"
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


_NEWS: Final = frozenset(State) - {State.DUPLICATE, State.QUARANTINED, State.REJECTED}
"""What is here already, or stays out, is of no age that anybody waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``told`` says why, and what to do next where something is to be done; ``place`` is where the
    carrier lies, of those that did not go in. ``checkpoint_at`` is when the checkpoint that came
    with it was made, and ``age_sec`` how old it was at the moment of the run; below 0 if the clocks
    disagree. Both are known once everything about a carrier holds.
    """

    state: State
    name: str
    bundle_id: bytes | None = None
    stream: str = ""
    from_seq: int = 0
    to_seq: int = 0
    checkpoint_at: int | None = None
    age_sec: int | None = None
    imported: int = 0
    duplicates: int = 0
    excluded: int = 0
    code: str = ""
    told: str = ""
    place: str = ""

    def at(self, now: int, warn_age_sec: int | None) -> Outcome:
        """The same with its age, and with a word about it where that is more than it may be.

        No age keeps anything out: a bundle that is carried again has the checkpoint that it had.
        """
        if self.checkpoint_at is None:
            return self
        age_sec = now - self.checkpoint_at
        old = too_old(age_sec, warn_age_sec) if self.state in _NEWS else ""
        return replace(self, age_sec=age_sec, told="; ".join(filter(None, (self.told, old))))
