"""The clock, randomness and sleep of a process, and the callbacks that report progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

Progress = Callable[[int, int | None], None]
"""Receives the amount done, and the total if it is known."""
Watch = Callable[[str, str], AbstractContextManager[Progress]]
"""Opens the progress of a task, given its description and its unit."""
_SPAN = 1 << 32


def no_progress(_done: int, _all: int | None) -> None:
    """Ignore progress."""


def no_progress_watch(_what: str, _unit: str) -> AbstractContextManager[Progress]:
    return nullcontext(no_progress)


def prefixed(watch: Watch, which: str) -> Watch:
    """The watch with a prefix before each description."""
    return lambda what, unit: watch(f"{which}: {what}", unit)


class ProgressCounter:
    """Adds up what is done, such as bytes or steps; what exceeds the ``total`` increases it."""

    def __init__(self, total: int, progress: Progress = no_progress) -> None:
        self._done = 0
        self._total = total
        self._progress = progress

    def begin(self) -> None:
        self._progress(self._done, self._total)

    def add(self, amount: int = 1) -> None:
        self._done += amount
        self._total = max(self._done, self._total)
        self._progress(self._done, self._total)

    def through(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            yield block
            self.add(len(block))

    def finish(self) -> None:
        """Report the end, even if less was needed."""
        self._progress(self._total, self._total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Clock, randomness and sleep, given by the entry point or by a test."""

    clock: Callable[[], int]
    random: Callable[[int], bytes]
    sleep: Callable[[float], None]

    def fraction(self) -> float:
        """A random number in [0, 1)."""
        return int.from_bytes(self.random(4), "big") / _SPAN
