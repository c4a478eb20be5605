"""Opening messages, here or in processes beside: it costs as much as verifying them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Protocol

from recorder.index.reading import Reader, Reading
from veen.errors import VeenError
from veen.limits import Limits


class OpenerEnded(VeenError):
    """A process that opened messages is gone."""


class Opener(Protocol):
    def begin(self, msgs: Sequence[bytes]) -> None:
        """Take messages; what was taken before was asked for with ``finish``."""

    def finish(self) -> list[Reading]:
        """What the messages were, in their order."""


class HereOpener:
    """Opens in this process, when it is asked for the result."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._msgs: Sequence[bytes] = ()

    def begin(self, msgs: Sequence[bytes]) -> None:
        self._msgs = msgs

    def finish(self) -> list[Reading]:
        return [self._reader.read(one) for one in self._msgs]


class BesideOpener:
    """Each process takes one run of the messages; it ends when its pipe does."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes

    def begin(self, msgs: Sequence[bytes]) -> None:
        share = -(-len(msgs) // len(self._pipes))
        for number, pipe in enumerate(self._pipes):
            pipe.send(msgs[number * share : (number + 1) * share])

    def finish(self) -> list[Reading]:
        try:
            return [one for pipe in self._pipes for one in pipe.recv()]
        except (EOFError, ConnectionError) as error:
            raise OpenerEnded("a process that opens messages has ended: start again") from error


@contextmanager
def opening(keys: Sequence[bytes], limits: Limits, processes: int) -> Iterator[Opener]:
    """An opener with so many processes beside; with none, it works here."""
    if not processes:
        yield HereOpener(Reader(keys, limits))
        return
    with ExitStack() as ending:
        pipes = [ending.enter_context(_beside(tuple(keys), limits)) for _ in range(processes)]
        yield BesideOpener(pipes)


@contextmanager
def _beside(keys: tuple[bytes, ...], limits: Limits) -> Iterator[Connection]:
    # Spawned, for a fork of a process with threads may stop for ever.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        ours.send((keys, limits))
        yield ours
    finally:
        ours.close()
        process.join()


def _serve(pipe: Connection) -> None:
    """Until the other end is closed, also by the death of whoever had it."""
    try:
        keys, limits = pipe.recv()
        reader = Reader(keys, limits)
        while True:
            pipe.send([reader.read(one) for one in pipe.recv()])
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return
