"""How far a piece of work has come, told step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[int, int], None]
"""Done, and in all."""


@dataclass(slots=True)
class Steps:
    """``total`` is what was expected; a step that nobody expected makes it larger."""

    progress: Progress
    total: int
    done: int = 0

    def begin(self) -> None:
        self.progress(self.done, self.total)

    def add(self, amount: int = 1) -> None:
        self.done += amount
        self.total = max(self.done, self.total)
        self.progress(self.done, self.total)

    def finish(self) -> None:
        """What was expected and did not come has been done without."""
        self.progress(self.total, self.total)
