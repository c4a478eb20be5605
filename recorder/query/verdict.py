"""What the check of a proof package found: every claim by itself, and one outcome of three.

A package is proven when every claim in ``REQUIRED`` held, failed when any claim failed, and
unproven when nothing failed but evidence that a proof needs is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

REQUIRED: Final = (
    "hub", "checkpoint", "descriptor", "request_recorded", "result_recorded", "searched",
    "rows_chain", "sampling", "rows_witnessed", "evidence_hash", "hub_newest",
)  # fmt: skip
"""The claims without which a package proves nothing, in the order in which gaps are named."""

ORIGINS: Final = "origins"
"""The claim of a package over import streams that the origins' hubs signed what came from them."""


class State(Enum):
    HELD = "held"
    FAILED = "failed"
    NOT_COVERED = "not covered"


class Outcome(Enum):
    PROVEN = "proven"
    FAILED = "failed"
    UNPROVEN = "unproven"


class Claim(NamedTuple):
    """``told`` says what it rests on, why it failed, or what would be needed to cover it."""

    name: str
    state: State
    told: str


@dataclass(frozen=True, slots=True)
class Verdict:
    claims: tuple[Claim, ...]

    @property
    def failed(self) -> tuple[Claim, ...]:
        return tuple(claim for claim in self.claims if claim.state is State.FAILED)

    @property
    def gaps(self) -> tuple[str, ...]:
        """The required claims that did not hold; a claim that was never checked is a gap."""
        return tuple(name for name in REQUIRED if not self.held(name))

    @property
    def outcome(self) -> Outcome:
        if self.failed:
            return Outcome.FAILED
        return Outcome.UNPROVEN if self.gaps else Outcome.PROVEN

    @property
    def reason(self) -> str:
        """Why the outcome is what it is: the first claim that failed or is missing."""
        if self.failed:
            return f"{self.failed[0].name}: {self.failed[0].told}"
        if self.gaps:
            return f"{self.gaps[0]}: {self._told(self.gaps[0])}"
        told = self._told("rows_witnessed"), self._told("checkpoint")
        return f"the recorder recorded this result, and {told[0]}, {told[1]}"

    @property
    def is_complete(self) -> bool:
        """Whether no matching row is missing, by keys of the hub that are known to be current."""
        return not self.failed and self.held("complete") and self.held("hub_newest")

    @property
    def completeness(self) -> str:
        """What is proven about rows that are not in the package."""
        if self.failed:
            return "nothing is proven about missing rows"
        if not self.held("hub_newest"):
            return "completeness unproven: the hub's identity may be out of date"
        if self.is_complete:
            return "complete: no matching row is missing up to the checkpoint"
        if self.held("result_recorded") and self.held("rows_chain"):
            return (
                "completeness unproven: every row that the recorder recorded is here, but whether "
                "it left out a matching row only veen query replay shows"
            )
        return "completeness unproven: rows may be missing"

    @property
    def summary(self) -> str:
        """One line: the outcome, its reason, and what is known about missing rows and origins."""
        found = f"{self.outcome.value}: {self.reason}; {self.completeness}"
        gap = next((one for one in self.claims if one.name == ORIGINS), None)
        if gap is not None and gap.state is State.NOT_COVERED:
            found += f"; origins unproven: {gap.told}"
        return found

    def held(self, name: str) -> bool:
        return any(one.name == name and one.state is State.HELD for one in self.claims)

    def document(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome.value,
            "reason": self.reason,
            "complete": self.is_complete,
            "completeness": self.completeness,
            "holds": self.outcome is Outcome.PROVEN,
            "claims": [
                {"claim": one.name, "state": one.state.value, "told": one.told}
                for one in self.claims
            ],
        }

    def _told(self, name: str) -> str:
        return next((one.told for one in self.claims if one.name == name), "was not checked")
