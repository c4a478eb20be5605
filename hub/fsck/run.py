"""Chunks of a data directory, audited here or in several processes beside."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Final

from hub.fsck.nodes import node_hint
from hub.storage.datadir import DataDir
from hub.storage.logged import Logged
from veen.audit.context import Context
from veen.audit.engine import audit_task
from veen.audit.findings import ChunkFindings, Task
from veen.entry import FramedEntry

_AHEAD: Final = 2
"""How many chunks a process has waiting, so that none is idle and memory stays bounded."""

Examined = tuple[ChunkFindings, list[Logged]]


def read_file(datadir: DataDir, name: str) -> bytes | None:
    try:
        return datadir.file(name).read_bytes()
    except FileNotFoundError:
        return None


def examine(datadir: DataDir, context: Context, task: Task) -> Examined:
    """What is found in one chunk, and what derived state needs of its entries."""
    entries: list[Logged] = []

    def see(framed: FramedEntry, at: int) -> None:
        entries.append(Logged.of(framed, at))

    hint = partial(node_hint, datadir.nodes(task.label))
    found = audit_task(task, partial(read_file, datadir), context, see=see, hint=hint)
    return found, entries


@dataclass(slots=True)
class Runner:
    """Keeps the entries of each chunk until the audit has settled it."""

    datadir: DataDir
    workers: int
    _entries: dict[str, list[Logged]] = field(default_factory=dict)

    def run(self, tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        if self.workers == 1:
            yield from (self.again(task, context) for task in tasks)
            return
        for examined in self._beside(tasks, context):
            yield self._keep(examined)

    def again(self, task: Task, context: Context) -> ChunkFindings:
        return self._keep(examine(self.datadir, context, task))

    def entries_of(self, found: ChunkFindings) -> list[Logged]:
        return self._entries.pop(found.task.file)

    def _keep(self, examined: Examined) -> ChunkFindings:
        found, entries = examined
        self._entries[found.task.file] = entries
        return found

    def _beside(self, tasks: Iterable[Task], context: Context) -> Iterator[Examined]:
        """The same in other processes; answers come in the order of the tasks."""
        waiting: deque[Future[Examined]] = deque()
        with ProcessPoolExecutor(
            self.workers, get_context("spawn"), _begin, (self.datadir, context)
        ) as pool:
            for task in tasks:
                waiting.append(pool.submit(_examine, task))
                if len(waiting) >= self.workers * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


_DATADIR: DataDir
_CONTEXT: Context


def _begin(datadir: DataDir, context: Context) -> None:
    """Once in each process: what all its chunks are audited with."""
    global _DATADIR, _CONTEXT
    _DATADIR, _CONTEXT = datadir, context


def _examine(task: Task) -> Examined:
    return examine(_DATADIR, _CONTEXT, task)
