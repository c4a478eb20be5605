"""Spark queries scheduled by Airflow, over version 2 of its REST API.

Requests are retried while Airflow restarts or is busy; only an answer from Airflow itself, or a
long time without any answer, ends a query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import httpx

from recorder.service.spark import JobFailed, SparkWork

DAG: Final = "veen_query"
RETRY_LIMIT_SEC: Final = 900.0
"""How long requests are retried while Airflow is unavailable, before a query fails."""

_FIRST_POLL_SEC: Final = 0.5
_MAX_POLL_SEC: Final = 10.0
_TIMEOUT_SEC: Final = 30.0
_RETRYABLE: Final = (
    httpx.codes.REQUEST_TIMEOUT,
    httpx.codes.TOO_EARLY,
    httpx.codes.TOO_MANY_REQUESTS,
)
T = TypeVar("T")
_log = logging.getLogger(__name__)


class _Unanswered(JobFailed):
    """No answer, or not a usable one: a retry may help."""


class _LoggedOut(JobFailed):
    """The token has expired; it is valid for a day."""


@dataclass(frozen=True, slots=True)
class AirflowAccount:
    username: str
    password: str = field(repr=False)


class AirflowScheduler:
    """A DAG run for each result, with the result_id as its id, so that a second request starts no
    other."""

    def __init__(
        self,
        url: str,
        account: AirflowAccount,
        sleep: Callable[[float], None],
        retry_limit_sec: float = RETRY_LIMIT_SEC,
    ) -> None:
        self._url = url.rstrip("/")
        self._retry_limit_sec = retry_limit_sec
        self._account = account
        self._sleep = sleep

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        with httpx.Client(base_url=self._url, timeout=_TIMEOUT_SEC) as http:
            self._retry(lambda: self._log_in(http), is_over)
            self._retry(lambda: self._start(http, work), is_over)
            self._await(http, work, is_over)

    def _log_in(self, http: httpx.Client) -> None:
        credentials = {"username": self._account.username, "password": self._account.password}
        token = _request(http, "POST", "/auth/token", credentials).get("access_token")
        http.headers["Authorization"] = f"Bearer {token}"

    def _start(self, http: httpx.Client, work: SparkWork) -> None:
        body = {
            "dag_run_id": work.result_id,
            "logical_date": None,
            "conf": {"result_id": work.result_id},
        }
        _request(http, "POST", f"/api/v2/dags/{DAG}/dagRuns", body, accept=(httpx.codes.CONFLICT,))

    def _await(self, http: httpx.Client, work: SparkWork, is_over: Callable[[], bool]) -> None:
        pause = _FIRST_POLL_SEC
        while True:
            state = self._retry(lambda: self._state(http, work), is_over)
            if state == "success":
                return
            if state == "failed":
                raise JobFailed(
                    f"Airflow's run {work.result_id} of {DAG} failed; see its log there"
                )
            self._pause(pause, is_over)
            pause = min(2 * pause, _MAX_POLL_SEC)

    def _state(self, http: httpx.Client, work: SparkWork) -> object:
        path = f"/api/v2/dags/{DAG}/dagRuns/{work.result_id}"
        try:
            return _request(http, "GET", path).get("state")
        except _LoggedOut:
            self._log_in(http)
            return _request(http, "GET", path).get("state")

    def _retry(self, ask: Callable[[], T], is_over: Callable[[], bool]) -> T:
        """Repeat a request with exponential backoff, up to a bound."""
        waited, pause = 0.0, _FIRST_POLL_SEC
        while True:
            try:
                return ask()
            except _Unanswered as error:
                if waited >= self._retry_limit_sec:
                    raise
                _log.warning("%s; retrying in %.1f s", error, pause)
            self._pause(pause, is_over)
            waited, pause = waited + pause, min(2 * pause, _MAX_POLL_SEC)

    def _pause(self, seconds: float, is_over: Callable[[], bool]) -> None:
        if is_over():
            raise JobFailed("the service ended; the query continues when it starts again")
        self._sleep(seconds)


def _request(
    http: httpx.Client,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    accept: tuple[int, ...] = (),
) -> dict[str, Any]:
    """The JSON object of a response with a success or an accepted status."""
    try:
        reply = http.request(method, path, json=body)
    except httpx.HTTPError as error:
        raise _Unanswered(f"Airflow did not answer at {http.base_url}: {error}") from error
    if not reply.is_success and reply.status_code not in accept:
        raise _refused(reply.status_code, f"{method} {path}")
    try:
        document = reply.json()
    except ValueError as error:
        raise _Unanswered(f"Airflow answered {method} {path} with no JSON") from error
    if not isinstance(document, dict):
        raise _Unanswered(f"Airflow answered {method} {path} with no object")
    return document


def _refused(status: int, what: str) -> JobFailed:
    message = f"Airflow refused {what} with {status}"
    if httpx.codes.is_server_error(status) or status in _RETRYABLE:
        return _Unanswered(message)
    return _LoggedOut(message) if status == httpx.codes.UNAUTHORIZED else JobFailed(message)
