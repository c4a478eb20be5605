"""How far long work on a carrier has come, told to whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

from veen.client.progress import Progress, untold

Watch = Callable[[str, str], AbstractContextManager[Progress]]
"""What is being done and in what unit, to the progress of it."""


def unwatched(_what: str, _unit: str) -> AbstractContextManager[Progress]:
    return nullcontext(untold)


def prefixed(watch: Watch, which: str) -> Watch:
    """Sees the same, and says of which thing it is."""
    return lambda what, unit: watch(f"{which}: {what}", unit)


class Count:
    """Bytes that went by, told block by block; ``due`` is how many there will be."""

    def __init__(self, due: int, progress: Progress = untold) -> None:
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
