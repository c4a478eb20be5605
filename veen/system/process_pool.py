"""A pool of worker processes for pure functions, and cheap pickling of frozen dataclasses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import cache
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from operator import attrgetter
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, TypeVar

from veen.errors import VeenError

P = TypeVar("P")
R = TypeVar("R")
_AHEAD: Final = 3
"""The number of parts queued per process, so that none is idle."""
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import veen.system.process_pool; "
    "veen.system.process_pool.serve(int(sys.argv[2]))"
)


class PoolBroken(VeenError):
    """A worker process has ended."""


class WorkerPool:
    """A pool in which each process handles one part at a time; without processes, in this one.

    Threads that call ``run`` take turns, so that answers are not mixed up.
    """

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes
        self._turn = Lock()
        self._begun: list[Any] = []

    @property
    def size(self) -> int:
        """The number of parts that can be handled at once."""
        return max(1, len(self._pipes))

    def begin(self, work: Callable[[P], Any], parts: Sequence[P]) -> None:
        """Hand over at most ``size`` parts; ``finish`` must have been called for earlier ones."""
        if not self._pipes:
            self._begun = [(work, part) for part in parts]
            return
        self._begun = list(self._pipes[: len(parts)])
        for pipe, part in zip(self._begun, parts, strict=True):
            _ask(pipe, (work, part))

    def finish(self) -> list[Any]:
        """The results of ``begin``, in order; the first error is raised."""
        begun, self._begun = self._begun, []
        if not self._pipes:
            return [work(part) for work, part in begun]
        return [_result(answer) for answer in [_answer(pipe) for pipe in begun]]

    def run(self, work: Callable[[P], R], parts: Iterable[P]) -> Iterator[R]:
        """The results of all parts, in order; only a few parts per process are in memory."""
        if not self._pipes:
            yield from map(work, parts)
            return
        with self._turn:
            yield from self._run(work, iter(parts))

    def _run(self, work: Callable[[P], R], left: Iterator[P]) -> Iterator[R]:
        waiting = deque[Connection]()
        try:
            for pipe, part in zip(_AHEAD * tuple(self._pipes), left, strict=False):
                _ask(pipe, (work, part))
                waiting.append(pipe)
            while waiting:
                pipe = waiting.popleft()
                answer = _answer(pipe)
                for part in islice(left, 1):
                    _ask(pipe, (work, part))
                    waiting.append(pipe)
                yield _result(answer)
        finally:
            for pipe in waiting:
                _answer(pipe)


IN_PROCESS = WorkerPool(())
"""The pool without processes."""


@contextmanager
def pool(processes: int) -> Iterator[WorkerPool]:
    """A pool of ``processes`` for the duration of the block; they end with this process."""
    with ExitStack() as ending:
        yield WorkerPool([ending.enter_context(_worker()) for _ in range(processes)])


@contextmanager
def _worker() -> Iterator[Connection]:
    # A fork of a process with threads may deadlock, and multiprocessing's spawn would import the
    # main module again.
    ours, theirs = Pipe()
    path, end = json.dumps(sys.path), theirs.fileno()
    process = subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-P", "-c", _PROGRAM, path, str(end)],
        stdin=subprocess.DEVNULL,
        pass_fds=[end],
    )
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.wait()


def serve(end: int) -> None:
    """Handle parts until the other end of the pipe is closed."""
    pipe, parts = Connection(end), SimpleQueue[Any]()
    Thread(target=_receive, args=(pipe, parts), daemon=True).start()
    try:
        while (part := parts.get()) is not None:
            pipe.send(_done(*part))
    except (ConnectionError, KeyboardInterrupt):
        return


def _receive(pipe: Connection, parts: SimpleQueue[Any]) -> None:
    """Receive parts at once, so that a sender that also waits for results does not block."""
    try:
        while True:
            parts.put(pipe.recv())
    except (EOFError, OSError):
        return
    finally:
        parts.put(None)


def _ask(pipe: Connection, work: tuple[Callable[[Any], Any], Any]) -> None:
    try:
        pipe.send(work)
    except ConnectionError as error:
        raise PoolBroken(
            "a worker process of the pool ended unexpectedly; run the command again"
        ) from error


def _answer(pipe: Connection) -> tuple[Any, VeenError | None]:
    try:
        raw: tuple[Any, VeenError | None] = pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise PoolBroken(
            "a worker process of the pool ended unexpectedly; run the command again"
        ) from error
    return raw


def _result(answer: tuple[Any, VeenError | None]) -> Any:
    result, raised = answer
    if raised is not None:
        raise raised
    return result


def _done(work: Callable[[Any], Any], part: Any) -> tuple[Any, VeenError | None]:
    try:
        return work(part), None
    except VeenError as error:
        return None, error


class Portable:
    """Fast pickling for dataclasses with slots: field lookups are cached per class."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        kind: Any = type(self)
        return _rebuild, (kind, *_values(kind)(self))


def _rebuild(kind: Any, *values: Any) -> Any:
    instance = object.__new__(kind)
    for set_, value in zip(_setters(kind), values, strict=True):
        set_(instance, value)
    return instance


@cache
def _values(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(kind)]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda item: tuple(getattr(item, name) for name in names)


@cache
def _setters(kind: Any) -> tuple[Callable[[Any, Any], None], ...]:
    """The setters of the slots, which also work for a frozen class."""
    return tuple(getattr(kind, field.name).__set__ for field in fields(kind))
