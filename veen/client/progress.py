"""How far long work has come, told to whoever wants to know."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""What is done, and what there is in all where that is known."""


def untold(_done: int, _all: int | None) -> None:
    """Nobody wants to know."""
