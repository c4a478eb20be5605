"""A HeldStream in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HeldRoots:
    """A HeldStream with roots by sequence number."""

    roots: Mapping[int, bytes] = field(default_factory=dict)

    def last_seq(self) -> int:
        return max(self.roots, default=0)

    def root_at(self, seq: int) -> bytes | None:
        return self.roots.get(seq)
