"""A query that waits for Airflow: what is transient is asked again, what is definite ends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recorder.service.airflow import AirflowAccount, AirflowScheduler
from recorder.service.spark import JobFailed, SparkWork
from support.local_http import Answering, served

WORK = SparkWork("r-" + "4" * 32, Path("/nowhere"))
CUT, NO_JSON = -1, -2
TOKEN, RUNS = "/auth/token", "/api/v2/dags/veen_query/dagRuns"


@contextmanager
def an_airflow(*answers: int | str) -> Iterator[tuple[str, list[str]]]:
    """To each question its next answer, the last one for ever: a status, a state, or a mishap."""
    left, asked = list(answers), list[str]()

    class Handler(Answering):
        def get(self) -> None:
            asked.append(self.path)
            self._tell(left.pop(0) if len(left) > 1 else left[0])

        def post(self) -> None:
            self.body()
            if self.path == TOKEN:
                asked.append(self.path)
                self._tell("a token")
            else:
                self.get()

        def _tell(self, what: int | str) -> None:
            if what == CUT:
                self.close_connection = True
                return
            content = b"<html>" if what == NO_JSON else json.dumps({"state": what}).encode()
            self.say(what if isinstance(what, int) and what > 0 else 200, content)

    with served(Handler) as url:
        yield url, asked


def waited(url: str) -> list[float]:
    """How long it has slept between its questions, until the run had ended well."""
    pauses: list[float] = []
    AirflowScheduler(url, AirflowAccount("veen", "secret"), pauses.append).run(WORK, lambda: False)
    return pauses


def test_polls_that_are_not_answered_do_not_fail_a_query() -> None:
    with an_airflow("queued", "running", 503, CUT, NO_JSON, 429, "running", "success") as (url, _):
        pauses = waited(url)
    assert pauses == [0.5, 0.5, 1.0, 2.0, 4.0, 1.0]


def test_an_airflow_that_is_starting_is_waited_for() -> None:
    with an_airflow(CUT, 502, "queued", "success") as (url, asked):
        waited(url)
    assert asked.count(RUNS) == 3


def test_a_token_that_has_run_out_is_asked_for_anew() -> None:
    with an_airflow("queued", "running", 401, "success") as (url, asked):
        waited(url)
    assert asked.count(TOKEN) == 2


@pytest.mark.parametrize("status", [403, 404, 422])
def test_a_definite_refusal_ends_it_at_once(status: int) -> None:
    with an_airflow("queued", status) as (url, asked), pytest.raises(JobFailed, match=str(status)):
        waited(url)
    assert len(asked) == 3


def test_a_long_silence_ends_it() -> None:
    with (
        an_airflow("queued", "running", 503) as (url, asked),
        pytest.raises(JobFailed, match="503"),
    ):
        AirflowScheduler(
            url, AirflowAccount("veen", "secret"), lambda _: None, retry_limit_sec=20.0
        ).run(WORK, lambda: False)
    assert 5 < len(asked) < 12


def test_the_end_of_the_service_ends_the_waiting_for_an_answer() -> None:
    with an_airflow(503) as (url, _), pytest.raises(JobFailed, match="continues when it starts"):
        AirflowScheduler(url, AirflowAccount("veen", "x"), lambda _: None).run(WORK, lambda: True)
