"""Those who examine the batches of a bundle: this process, or others beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import Final, Self, TypeVar

from bridge.bundle_reader import Batch, Source, read_batch
from bridge.verify_events import Terms

T = TypeVar("T")
Examine = Callable[[bytes, int, Terms], T]
_AHEAD: Final = 3


class Crew:
    """Answers come in the order of the batches; few batches are in memory at a time."""

    def __init__(self, source: Source, terms: Terms, workers: int) -> None:
        self._source = source
        self._terms = terms
        self._workers = workers
        # Not forked: whoever verifies may have threads.
        self._pool = ProcessPoolExecutor(workers, get_context("spawn")) if workers > 1 else None

    def run(self, examine: Examine[T], batches: Iterable[Batch]) -> Iterator[T]:
        if self._pool is None:
            for batch in batches:
                raw = read_batch(self._source, batch)
                yield examine(raw, batch.first_seq, self._terms)
            return
        waiting: deque[Future[T]] = deque()
        for batch in batches:
            raw = read_batch(self._source, batch)
            waiting.append(self._pool.submit(examine, raw, batch.first_seq, self._terms))
            if len(waiting) >= self._workers * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
