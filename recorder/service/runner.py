"""The runner: takes queries in their order, runs each and sees it to its end (Query API 8.1).

There is one for a service. Rows are made beside it in threads or by Spark; everything that is
recorded goes through its one client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from recorder.index.plan import TooLarge
from recorder.query.digest import ResultDigest
from recorder.service.bookkeeping import Bookkeeping
from recorder.service.engine import INLINE, InlineEngine, descriptor_of
from recorder.service.metrics import RunnerMetrics
from recorder.service.query_state import Query
from recorder.service.refusal import ErrorCode
from recorder.service.results import Results
from recorder.service.spark_engine import SPARK
from recorder.service.spark_queries import SparkQueries
from veen.crew import CrewEnded
from veen.errors import VeenError

MAX_ATTEMPTS: Final = 3
INLINE_AT_ONCE: Final = 2
SPARK_AT_ONCE: Final = 2
_log = logging.getLogger(__name__)


class Runner:
    """``spark`` takes what the index cannot answer within bounds, where there is one."""

    def __init__(
        self,
        results: Results,
        books: Bookkeeping,
        inline: InlineEngine,
        spark: SparkQueries | None,
        *,
        owner: str,
        clock_ms: Callable[[], int],
        metrics: RunnerMetrics,
        done: Callable[[], None],
    ) -> None:
        self._results = results
        self._books = books
        self._inline = inline
        self._spark = spark
        self._owner = owner
        self._clock_ms = clock_ms
        self._metrics = metrics
        self._done = done
        self._pool = ThreadPoolExecutor(INLINE_AT_ONCE, thread_name_prefix="query")
        self._spark_pool = ThreadPoolExecutor(SPARK_AT_ONCE, thread_name_prefix="spark")
        self._running: dict[str, tuple[Query, Future[ResultDigest]]] = {}
        self._begun: dict[str, tuple[str, int]] = {}

    def turn(self) -> None:
        """All that can be done now."""
        if not self._books.settle():
            self._books.refuse_new()
            return
        self._books.record_requests()
        self._begin()
        self._collect()
        for query in self._books.record_digests():
            self._count(query, "completed")

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()
        for pool in (self._pool, self._spark_pool):
            pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self) -> None:
        for query in self._results.runnable(self._owner):
            if query.attempts >= MAX_ATTEMPTS:
                self._fail(query, "interrupted: the runner ended each time it ran this query")
            else:
                self._start(query, INLINE, self._pool, self._run_inline)

    def _start(
        self,
        query: Query,
        engine: str,
        pool: ThreadPoolExecutor,
        run: Callable[[Query], ResultDigest],
    ) -> None:
        self._results.begin(
            query.query_id, owner=self._owner, engine=engine, now_ms=self._clock_ms()
        )
        self._begun[query.query_id] = engine, self._clock_ms()
        future = pool.submit(run, query)
        self._running[query.query_id] = query, future
        future.add_done_callback(lambda _: self._done())

    def _collect(self) -> None:
        ready = [(query, one) for query, one in self._running.values() if one.done()]
        for query, future in ready:
            del self._running[query.query_id]
            self._end(query, future)

    def _end(self, query: Query, future: Future[ResultDigest]) -> None:
        error = future.exception()
        if error is None:
            after = self._results.last_seq("result_event")
            self._results.materialised(query.query_id, future.result().encode(), after)
        elif isinstance(error, TooLarge) and self._spark is not None:
            self._start(query, SPARK, self._spark_pool, self._run_spark)
        elif isinstance(error, CrewEnded):
            # No fault of the query: it stays as it is for the runner that comes after us.
            raise error
        elif isinstance(error, VeenError):
            self._fail(query, str(error))
        else:
            _log.error("query %s failed", query.query_id, exc_info=error)
            self._fail(query, "the engine failed; the service's log tells more")

    def _run_inline(self, query: Query) -> ResultDigest:
        descriptor = descriptor_of(query)
        checkpoint = self._inline.checkpoint(descriptor)
        return self._inline.run(descriptor, query.result_id, checkpoint)

    def _run_spark(self, query: Query) -> ResultDigest:
        assert self._spark is not None  # noqa: S101 - for the type checker
        return self._spark.run(descriptor_of(query), query.result_id)

    def _fail(self, query: Query, message: str) -> None:
        _log.warning("query %s failed: %s", query.query_id, message)
        now = self._clock_ms()
        self._results.failed(query.query_id, ErrorCode.EXECUTION_FAILED, message, now)
        self._count(query, "failed")

    def _count(self, query: Query, state: str) -> None:
        engine, begun = self._begun.pop(query.query_id, (query.engine or INLINE, self._clock_ms()))
        self._metrics.ended.labels(engine, state).inc()
        self._metrics.duration.labels(engine).observe((self._clock_ms() - begun) / 1000)
