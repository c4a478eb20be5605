"""What the importing zone holds of a stream already, and how a bundle joins on to it (AGB0 4.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from bridge.refusal import Fault, Refused
from veen.range_proof import RangeProof


class Held(Protocol):
    """A stream as far as it has been imported."""

    def last_seq(self) -> int:
        """The last event held without a gap before it; 0 for none."""

    def root_at(self, seq: int) -> bytes | None:
        """The verified root of the source's range at ``seq``; None when it is not held."""


@dataclass(frozen=True, slots=True)
class HeldRoots:
    """Held, from roots by sequence number."""

    roots: Mapping[int, bytes] = field(default_factory=dict)

    def last_seq(self) -> int:
        return max(self.roots, default=0)

    def root_at(self, seq: int) -> bytes | None:
        return self.roots.get(seq)


class Continuity(Enum):
    FIRST = "the stream begins here"
    FOLLOWS = "it follows what is held"
    OVERLAPS = "it begins within what is held"
    GAP = "events before it are not held yet"
    UNTESTED = "nothing was given to join on to"


def verify_continuity(proof: RangeProof, held: Held | None) -> Continuity:
    """Refuse a bundle whose past is not the past that is held: the hub has told two stories."""
    before = proof.from_seq - 1
    if before == 0:
        return Continuity.FIRST
    if held is None:
        return Continuity.UNTESTED
    root = held.root_at(before)
    if root is None:
        return Continuity.GAP if before > held.last_seq() else Continuity.UNTESTED
    if proof.before().root() != root:
        raise Refused(
            Fault.FORK,
            f"the root at {before} is not the one held; freeze the stream and keep both receipts",
            seq=proof.from_seq,
        )
    return Continuity.FOLLOWS if before == held.last_seq() else Continuity.OVERLAPS
