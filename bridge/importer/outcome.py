"""What became of a carrier: the states of the airlock, and what a run tells of each.

What a carrier claims to carry, before it is known whether that holds (D67).

One carrier on its way through the airlock: where it lies now, and where it came from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from bridge.carrier.verify import VerifyReport, too_old


class ClaimedBundle(NamedTuple):
    """The bundle that the ledger of a carrier names."""

    bundle_id: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int

    def position(self, seq: int) -> int | None:
        """Where an event of the source stands in the bundle, from 0; None for none of it."""
        return seq - self.from_seq if self.from_seq <= seq <= self.to_seq else None


def claim_of(report: VerifyReport) -> ClaimedBundle | None:
    """None where no trusted exporter has signed it, it is not readable, or it is a heartbeat."""
    if report.signer is None or report.ledger is None:
        return None
    entry = report.ledger.tail[-1]
    if entry.bundle_id is None:
        return None
    return ClaimedBundle(entry.bundle_id, entry.hub_id, entry.stream, entry.from_seq, entry.to_seq)


class ImportState(Enum):
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


_NEWS: Final = frozenset(ImportState) - {
    ImportState.DUPLICATE,
    ImportState.QUARANTINED,
    ImportState.REJECTED,
}
"""What is here already, or stays out, is of no age that anybody waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOutcome:
    """``told`` says why, and what to do next where something is to be done; ``place`` is where the
    carrier lies, of those that did not go in. ``checkpoint_at`` is when the checkpoint that came
    with it was made, and ``age_sec`` how old it was at the moment of the run; below 0 if the clocks
    disagree. Both are known once everything about a carrier holds.
    """

    state: ImportState
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
    detail: str = ""
    place: str = ""

    def at(self, now: int, warn_age_sec: int | None) -> ImportOutcome:
        """The same with its age, and with a word about it where that is more than it may be.

        No age keeps anything out: a bundle that is carried again has the checkpoint that it had.
        """
        if self.checkpoint_at is None:
            return self
        age_sec = now - self.checkpoint_at
        old = too_old(age_sec, warn_age_sec) if self.state in _NEWS else ""
        return replace(self, age_sec=age_sec, detail="; ".join(filter(None, (self.detail, old))))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingCarrier:
    """``place`` holds its bags, which are ours alone; ``inbox`` are the names it came under.

    ``sha256`` is the hash of what was received. A carrier that has waited came by no name.
    ``doubled`` are those of the names under which only bags lie that are there twice.
    """

    name: str
    place: Path
    bags: tuple[Path, ...]
    inbox: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    sha256: bytes

    @classmethod
    def held(cls, bundle_id: bytes, place: Path, sha256: bytes) -> IncomingCarrier:
        """A bundle that has been here before."""
        return cls(name=bundle_id.hex(), place=place, bags=bags_in(place), sha256=sha256)

    @property
    def is_new(self) -> bool:
        return bool(self.inbox)


def bags_in(place: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in place.iterdir() if path.is_dir()))
