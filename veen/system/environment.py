"""The clock, randomness and sleep of a process, and the callbacks that report progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

ArchiveProgress = Callable[[int, int], None]
"""Receives the amount done and the total."""
Progress = Callable[[int, int | None], None]
"""Receives the amount done, and the total if it is known."""
Watch = Callable[[str, str], AbstractContextManager[Progress]]
"""Opens the progress of a task, given its description and its unit."""
_SPAN = 1 << 32


@dataclass(slots=True)
class ArchiveSteps:
    """Progress in steps; steps beyond the expected ``total`` increase it."""

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
        """Report the end, even if fewer steps were needed."""
        self.progress(self.total, self.total)


def no_progress(_done: int, _all: int | None) -> None:
    """Ignore progress."""


def no_progress_watch(_what: str, _unit: str) -> AbstractContextManager[Progress]:
    return nullcontext(no_progress)


def prefixed(watch: Watch, which: str) -> Watch:
    """The watch with a prefix before each description."""
    return lambda what, unit: watch(f"{which}: {what}", unit)


class Count:
    """Reports progress in bytes; ``due`` is the total."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Clock, randomness and sleep, given by the entry point or by a test."""

    clock: Callable[[], int]
    random: Callable[[int], bytes]
    sleep: Callable[[float], None]

    def fraction(self) -> float:
        """A random number in [0, 1)."""
        return int.from_bytes(self.random(4), "big") / _SPAN
