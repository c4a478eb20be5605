"""A bound on how long a job on Spark may take: a paused DAG or a hung job would never end."""

from __future__ import annotations

from collections.abc import Callable

from recorder.service.scheduling import JobFailed, Scheduler, SparkWork


class TimeLimit:
    """The scheduler that it is given, which is told to give up when the time is over."""

    def __init__(
        self, scheduler: Scheduler, limit_sec: float, monotonic: Callable[[], float]
    ) -> None:
        self._scheduler = scheduler
        self._limit_sec = limit_sec
        self._monotonic = monotonic

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        deadline = self._monotonic() + self._limit_sec

        def is_late() -> bool:
            return self._monotonic() >= deadline

        try:
            self._scheduler.run(work, lambda: is_over() or is_late())
        except JobFailed as error:
            if is_over() or not is_late():
                raise
            raise JobFailed(
                f"Spark did not end within {self._limit_sec:g} seconds (spark_timeout_sec): see "
                f"{work.log}, or in Airflow whether veen_query is paused; then submit again"
            ) from error
