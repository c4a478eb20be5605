"""Queries on Spark scheduled by Airflow, over its REST API (version 2 of the API)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from recorder.service.scheduling import JobFailed, SparkWork

DAG: Final = "veen_query"
_FIRST_LOOK_SEC: Final = 0.5
_MOST_LOOK_SEC: Final = 10.0
_TIMEOUT_SEC: Final = 30.0


@dataclass(frozen=True, slots=True)
class AirflowAccount:
    username: str
    password: str = field(repr=False)


class AirflowScheduler:
    """One DAG run for a result: its id is the result_id, so that asking twice starts one."""

    def __init__(self, url: str, account: AirflowAccount, sleep: Callable[[float], None]) -> None:
        self._url = url.rstrip("/")
        self._account = account
        self._sleep = sleep

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        with httpx.Client(base_url=self._url, timeout=_TIMEOUT_SEC) as http:
            self._log_in(http)
            self._start(http, work)
            self._await(http, work, is_over)

    def _log_in(self, http: httpx.Client) -> None:
        given = {"username": self._account.username, "password": self._account.password}
        token = _asked(http, "POST", "/auth/token", given).get("access_token")
        http.headers["Authorization"] = f"Bearer {token}"

    def _start(self, http: httpx.Client, work: SparkWork) -> None:
        given = {
            "dag_run_id": work.result_id,
            "logical_date": None,
            "conf": {"result_id": work.result_id},
        }
        _asked(http, "POST", f"/api/v2/dags/{DAG}/dagRuns", given, accept=(httpx.codes.CONFLICT,))

    def _await(self, http: httpx.Client, work: SparkWork, is_over: Callable[[], bool]) -> None:
        pause = _FIRST_LOOK_SEC
        while True:
            found = _asked(http, "GET", f"/api/v2/dags/{DAG}/dagRuns/{work.result_id}")
            state = found.get("state")
            if state == "success":
                return
            if state == "failed":
                raise JobFailed(
                    f"Airflow's run {work.result_id} of {DAG} failed; see its log there"
                )
            if is_over():
                raise JobFailed("the service ended; the query is taken up when it starts")
            self._sleep(pause)
            pause = min(2 * pause, _MOST_LOOK_SEC)


def _asked(
    http: httpx.Client,
    method: str,
    path: str,
    given: dict[str, Any] | None = None,
    *,
    accept: tuple[int, ...] = (),
) -> dict[str, Any]:
    """The JSON object of an answer that is a success or an accepted status."""
    try:
        reply = http.request(method, path, json=given)
    except httpx.HTTPError as error:
        raise JobFailed(f"Airflow did not answer at {http.base_url}: {error}") from error
    if not reply.is_success and reply.status_code not in accept:
        raise JobFailed(f"Airflow refused {method} {path} with {reply.status_code}")
    try:
        found = reply.json()
    except ValueError as error:
        raise JobFailed(f"Airflow answered {method} {path} with no JSON") from error
    if not isinstance(found, dict):
        raise JobFailed(f"Airflow answered {method} {path} with no object")
    return found
