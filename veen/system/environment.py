"""How far a piece of work has come, told step by step.

How far long work has come, told to whoever wants to know.

How far long work on a carrier has come, told to whoever watches it.

Clock, chance and sleep: what a client takes from the world beside its hub and its directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

ArchiveProgress = Callable[[int, int], None]
"""Done, and in all."""


@dataclass(slots=True)
class ArchiveSteps:
    """``total`` is what was expected; a step that nobody expected makes it larger."""

    progress: ArchiveProgress
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


Progress = Callable[[int, int | None], None]
"""What is done, and what there is in all where that is known."""


def no_progress(_done: int, _all: int | None) -> None:
    """Nobody wants to know."""


Watch = Callable[[str, str], AbstractContextManager[Progress]]
"""What is being done and in what unit, to the progress of it."""


def no_progress_watch(_what: str, _unit: str) -> AbstractContextManager[Progress]:
    return nullcontext(no_progress)


def prefixed(watch: Watch, which: str) -> Watch:
    """Sees the same, and says of which thing it is."""
    return lambda what, unit: watch(f"{which}: {what}", unit)


class Count:
    """Bytes that went by, told block by block; ``due`` is how many there will be."""

    def __init__(self, due: int, progress: Progress = no_progress) -> None:
        self._done = 0
        self._due = due
        self._progress = progress

    def add(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._due)

    def through(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            yield block
            self.add(len(block))


_SPAN = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Handed in by the entry point; a test hands in its own."""

    clock: Callable[[], int]
    random: Callable[[int], bytes]
    sleep: Callable[[float], None]

    def fraction(self) -> float:
        """A number from 0 up to, not including, 1."""
        return int.from_bytes(self.random(4), "big") / _SPAN
