"""Clock, chance and sleep: what a client takes from the world beside its hub and its directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_SPAN = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Handed in by the entry point; a test hands in its own."""

    clock: Callable[[], int]
    random: Callable[[int], bytes]
    sleep: Callable[[float], None]

    def fraction(self) -> float:
        """A number from 0 up to, not including, 1."""
        return int.from_bytes(self.random(4), "big") / _SPAN
