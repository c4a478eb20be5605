"""What the check of a proof package found: every claim by itself, never one word for all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple


class State(Enum):
    HELD = "held"
    FAILED = "failed"
    NOT_COVERED = "not covered"


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

    def document(self) -> dict[str, Any]:
        return {
            "holds": not self.failed,
            "claims": [
                {"claim": one.name, "state": one.state.value, "told": one.told}
                for one in self.claims
            ],
        }
