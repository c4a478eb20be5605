"""Who is told how the log of a hub fares."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Counts and times what the log does."""

    def appended(self, seconds: float) -> None:
        """A group was written and synced."""

    def checkpointed(self, entries: int) -> None:
        """A checkpoint was made, so many entries after the last of its label."""


class Unobserved:
    def appended(self, seconds: float) -> None: ...

    def checkpointed(self, entries: int) -> None: ...
