"""The outcome of a carrier, and the types of a carrier in process: its position and its claims
(D67).
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
        """The position of a source event in the bundle, from 0; None if it is not in it."""
        return seq - self.from_seq if self.from_seq <= seq <= self.to_seq else None


def claim_of(report: VerifyReport) -> ClaimedBundle | None:
    """The claimed bundle; None if the carrier is unsigned, unreadable, or a heartbeat."""
    if report.signer is None or report.ledger is None:
        return None
    entry = report.ledger.tail[-1]
    if entry.bundle_id is None:
        return None
    return ClaimedBundle(entry.bundle_id, entry.hub_id, entry.stream, entry.from_seq, entry.to_seq)


class ImportState(Enum):
    """The state of a carrier; IMPORTED and the following are final.

    REFUSED is a medium of which nothing was copied. RELEASED is back in the inbox from quarantine.
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
"""States in which the age of the checkpoint is of interest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOutcome:
    """The outcome of a carrier. ``detail`` says why, and what to do next if action is needed;
    ``place`` is the path of a carrier that was not imported. ``checkpoint_at`` is when its
    checkpoint was made, and ``age_sec`` its age at the time of the run, below 0 if the clocks
    disagree. Both are known only for a valid carrier.
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
        """The same with its age, and with a warning in its detail if that is above the limit.

        No age excludes a bundle: one that is carried again has the checkpoint that it had.
        """
        if self.checkpoint_at is None:
            return self
        age_sec = now - self.checkpoint_at
        old = too_old(age_sec, warn_age_sec) if self.state in _NEWS else ""
        return replace(self, age_sec=age_sec, detail="; ".join(filter(None, (self.detail, old))))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingCarrier:
    """A carrier in process. ``place`` holds our private copy of its bags; ``inbox`` are its names
    in the inbox, none for a carrier that was held.

    ``sha256`` is the hash of what was received. ``doubled`` are names in the inbox whose bags are
    there a second time.
    """

    name: str
    place: Path
    bags: tuple[Path, ...]
    inbox: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    sha256: bytes

    @classmethod
    def held(cls, bundle_id: bytes, place: Path, sha256: bytes) -> IncomingCarrier:
        """The carrier of a held bundle."""
        return cls(name=bundle_id.hex(), place=place, bags=bags_in(place), sha256=sha256)

    @property
    def is_new(self) -> bool:
        return bool(self.inbox)


def bags_in(place: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in place.iterdir() if path.is_dir()))
