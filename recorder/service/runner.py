"""The runner: takes queries in order, runs each, and brings it to a terminal state (Query API 8.1).

A service has one runner. Rows are computed in threads or by Spark; everything that is recorded goes
through the runner's single client, and so does the index follower, which is one of its threads. The
rows of expired results are deleted; the states of their queries are retained.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Thread
from typing import Final

from recorder.checkpoints.checkpoints import pruned
from recorder.checkpoints.schedule import heads
from recorder.index.engine import QueryTooLarge
from recorder.index.follower import Follower, opening
from recorder.index.rebuild import create
from recorder.index.tables import IndexBusy, IndexHome
from recorder.index.writer import writing
from recorder.query.digest import ResultDigest
from recorder.service.database import Query, Results
from recorder.service.errors import ErrorCode
from recorder.service.execute import INLINE, InlineEngine, descriptor_of
from recorder.service.follower_report import ELSEWHERE, Reporter
from recorder.service.recording import Bookkeeping
from recorder.service.spark import SPARK, SparkQueries
from recorder.service.supervisor import RunnerMetrics, ServiceHome
from recorder.stream_map import RecorderStreamMap
from veen.client.client import Client
from veen.client.session import Session
from veen.client.transport import HubRefused, Unreachable
from veen.errors import VeenError
from veen.label import DEFAULT_PROFILE
from veen.system.process_pool import PoolBroken

_DAY_MS: Final = 86_400_000
_EXPIRY_SEC: Final = 3_600
_REMOVALS: Final = 100
_STEP_MS: Final = 3_600_000
FIRST_PAUSE_SEC: Final = 0.5
MAX_PAUSE_SEC: Final = 60.0
_RETRY_SEC: Final = 1.0
_STEADY_SEC: Final = 60.0
_DEFAULT_PROFILE_ID: Final = DEFAULT_PROFILE.profile_id()
MAX_ATTEMPTS: Final = 3
INLINE_AT_ONCE: Final = 2
SPARK_AT_ONCE: Final = 2
_log = logging.getLogger(__name__)


class Expiry:
    """Deletes the rows of expired results; ``keep_days`` None keeps all.

    The interval goes by ``steady``, which setting the clock does not change. While the clock is
    more than an hour ahead of its start plus the elapsed time, nothing is deleted, since rows could
    expire early.
    """

    def __init__(
        self,
        results: Results,
        home: ServiceHome,
        keep_days: int | None,
        clock_ms: Callable[[], int],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._results = results
        self._home = home
        self._keep_days = keep_days
        self._clock_ms = clock_ms
        self._steady = steady
        self._due = steady()
        self._started = (clock_ms(), steady())

    def turn(self) -> None:
        """Periodically: a result is marked first, so that no one reads half of its rows."""
        now, steady = self._clock_ms(), self._steady()
        if steady < self._due:
            return
        self._due = steady + _EXPIRY_SEC
        if self._is_ahead(now, steady):
            _log.error("rows of old results stay: the clock stepped ahead; restart if it is right")
            return
        if self._keep_days is not None:
            self._results.expire(now - self._keep_days * _DAY_MS, now)
        while expired := self._results.unremoved(_REMOVALS):
            for result_id in expired:
                for folder in (self._home.rows, self._home.spark):
                    if (folder / result_id).exists():
                        shutil.rmtree(folder / result_id)
            self._results.removed(expired)

    def _is_ahead(self, now_ms: int, steady: float) -> bool:
        clock_ms, since = self._started
        step = now_ms - clock_ms - int(1000 * (steady - since))
        if abs(step) <= _STEP_MS:
            self._started = (now_ms, steady)
        return step > _STEP_MS


class Following:
    """The index follower as a thread, restarted after every failure until the runner ends.

    Pauses grow exponentially until it has run steadily. A hub that failed verification is asked
    again too: its alarms stay in the index, and queries report them.
    """

    def __init__(
        self,
        client: Client,
        home: IndexHome,
        openers: int,
        reporter: Reporter,
        *,
        streams: RecorderStreamMap | None = None,
    ) -> None:
        self._streams = streams
        self._client = client
        self._home = home
        self._openers = openers
        self._reporter = reporter
        self._over = Event()
        self._thread = Thread(target=self._run, name="index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        pause = FIRST_PAUSE_SEC
        while not self._over.is_set():
            started = time.monotonic()
            try:
                self._reporter.alive()
                self._follow()
            except IndexBusy:
                # Another process follows or rebuilds it; we take over when it ends.
                self._reporter.alive(ELSEWHERE)
                self._over.wait(_RETRY_SEC)
            except Unreachable as error:
                self._report(error, _RETRY_SEC)
                self._over.wait(_RETRY_SEC)
            except Exception as error:  # noqa: BLE001 - the thread must outlive every failure
                if time.monotonic() - started > _STEADY_SEC:
                    pause = FIRST_PAUSE_SEC
                self._report(error, pause)
                self._over.wait(pause)
                pause = min(2 * pause, MAX_PAUSE_SEC)
        self._reporter.ended()

    def _report(self, error: Exception, pause: float) -> None:
        detail = str(error) or type(error).__name__
        if isinstance(error, VeenError):
            _log.error("the index follower failed and starts again in %g s: %s", pause, detail)
        else:
            _log.exception("the index follower failed and starts again in %g s", pause)
        self._reporter.failed(f"{detail}; it starts again in {pause:g} s")

    def _is_over(self) -> bool:
        """Called in every round and for every batch, so it also reports that the thread lives."""
        self._reporter.alive()
        return self._over.is_set()

    def _follow(self) -> None:
        session = self._client.meet()
        _log_pruned(session)
        keys = session.identity.readers()
        with self._home.locked():
            generation = create(self._home, session.hub.hub_id)
            with (
                opening(keys, session.limits, self._openers) as opener,
                writing(generation) as writer,
            ):
                Follower(self._client, writer, opener, streams=self._streams).run(self._is_over)


def _log_pruned(session: Session) -> None:
    try:
        infos = [
            stream for stream in session.api.streams() if stream.profile_id == _DEFAULT_PROFILE_ID
        ]
        pruned_streams = list(pruned(session, heads(infos)))
    except HubRefused as error:
        _log.warning("whether the hub still has all of its streams is unknown: %s", error)
        return
    for stream in pruned_streams:
        _log.critical("%s", stream.describe())


class QueryRunner:
    """Runs queries.

    ``spark`` takes those that exceed the bounds of the index, if it is configured.
    """

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
        """Do everything that can be done now."""
        if not self._books.settle():
            self._books.cancel_new()
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
        ready = [(query, future) for query, future in self._running.values() if future.done()]
        for query, future in ready:
            del self._running[query.query_id]
            self._end(query, future)

    def _end(self, query: Query, future: Future[ResultDigest]) -> None:
        error = future.exception()
        if error is None:
            after = self._results.last_seq("result_event")
            self._results.materialised(query.query_id, future.result().encode(), after)
        elif isinstance(error, QueryTooLarge) and self._spark is not None:
            self._start(query, SPARK, self._spark_pool, self._run_spark)
        elif isinstance(error, PoolBroken):
            # Not a fault of the query: the next runner runs it again.
            raise error
        elif isinstance(error, VeenError):
            self._fail(query, str(error))
        else:
            _log.error("query %s failed", query.query_id, exc_info=error)
            self._fail(query, "the engine failed; see the log of the service")

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
