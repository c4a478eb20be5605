"""Opening messages while others are verified: it costs as much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from recorder.index.reading import Reader, Reading
from veen.crew import Crew, crew
from veen.limits import Limits


class Opener:
    """Opens batch after batch, each split among the processes of a crew."""

    def __init__(self, reader: Reader, beside: Crew) -> None:
        self._work = partial(_read, reader)
        self._crew = beside

    def begin(self, msgs: Sequence[bytes]) -> None:
        """Take messages; what was taken before was asked for with ``finish``."""
        share = max(1, -(-len(msgs) // self._crew.size))
        parts = [msgs[start : start + share] for start in range(0, len(msgs), share)]
        self._crew.begin(self._work, parts)

    def finish(self) -> list[Reading]:
        """What the messages were, in their order."""
        return [one for part in self._crew.finish() for one in part]


@contextmanager
def opening(keys: Sequence[bytes], limits: Limits, processes: int) -> Iterator[Opener]:
    """An opener with so many processes beside; with none, it works here."""
    with crew(processes) as beside:
        yield Opener(Reader(keys, limits), beside)


def _read(reader: Reader, msgs: Sequence[bytes]) -> list[Reading]:
    return [reader.read(one) for one in msgs]
