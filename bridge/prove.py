"""What a bridge must keep true, and how it is shown: a claim with its witness (AGB0 4.8, 5.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bridge.reconcile.ranges import Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """``witness`` is what it was judged by. A claim that does not hold has a counterexample; one
    that could not be judged has ``untold``, what was not there to judge it by.
    """

    name: str
    says: str
    witness: dict[str, Any]
    counterexample: str | None = None
    untold: str | None = None

    @property
    def holds(self) -> bool:
        return self.counterexample is None and self.untold is None

    def document(self) -> dict[str, Any]:
        return {
            "claim": self.name,
            "says": self.says,
            "verdict": self._verdict(),
            "counterexample": self.counterexample,
            "untold": self.untold,
            "witness": self.witness,
        }

    def _verdict(self) -> str:
        if self.counterexample is not None:
            return "broken"
        return "untold" if self.untold is not None else "holds"


def spans(seqs: Iterable[int]) -> list[list[int]]:
    """Sequence numbers as a witness tells them: ranges, both ends included."""
    return [list(one) for one in Ranges((n, n) for n in seqs)]
