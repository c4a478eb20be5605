"""Airflow of one zone as a person uses it: over its REST API, under a name and with a password."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import httpx

from cli import interrupt
from cli.failure import Refused

_TIMEOUT_SEC: Final = 60.0
_ATTEMPTS: Final = 5
_LOOK_SEC: Final = 1.0
_ENDED: Final = ("success", "failed")


class Run(NamedTuple):
    dag_id: str
    run_id: str
    state: str
    type: str

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED


class Question(NamedTuple):
    """Which task of a run waits for a person."""

    run: Run
    task_id: str


class AirflowApi:
    """Somebody at an Airflow; every wait ends, and says what it waited for."""

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=url, timeout=_TIMEOUT_SEC, trust_env=False, headers={"Accept": "*/*"}
        )
        given = {"username": username, "password": password}
        try:
            token = self.ask("POST", "/auth/token", given)["access_token"]
        except Refused:
            self.close()
            raise
        self._http.headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, given: Any = None) -> dict[str, Any]:
        reply = self.reply(method, path, given)
        if not reply.is_success:
            raise Refused(f"Airflow refused {method} {path}: {reply.status_code} {reply.text}")
        found: dict[str, Any] = reply.json()
        return found

    def reply(self, method: str, path: str, given: Any = None) -> httpx.Response:
        """What may be asked twice is asked again while a busy host gives a poor answer or none."""
        attempts = _ATTEMPTS if method == "GET" or path.startswith("/auth/") else 1
        for left in reversed(range(attempts)):
            try:
                found = self._http.request(method, path, json=given)
                if not left or not found.is_server_error:
                    return found
            except httpx.HTTPError as error:
                if not left:
                    raise Refused(f"Airflow does not answer at {self.url}: {error}") from error
            interrupt.sleep(_LOOK_SEC)
        raise AssertionError(path)

    def await_dags(self, wanted: set[str], patience_sec: float) -> None:
        """Until the DAG processor has read them."""

        def there() -> bool:
            found = self.ask("GET", "/api/v2/dags?limit=100")["dags"]
            return wanted <= {one["dag_id"] for one in found}

        await_that(there, f"DAGs {', '.join(sorted(wanted))} at {self.url}", patience_sec)

    def unpause(self, dag_id: str) -> None:
        self.ask("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})

    def watch(self, dag_id: str) -> None:
        """Unpause a DAG that something outside starts, and have Airflow look out for that now."""
        self.unpause(dag_id)
        token = self.ask("GET", f"/api/v2/dags/{dag_id}")["file_token"]
        self.ask("PUT", f"/api/v2/parseDagFile/{token}")

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> Run:
        given = {"logical_date": None, "conf": conf or {}}
        return _run(self.ask("POST", f"/api/v2/dags/{dag_id}/dagRuns", given))

    def runs(self, dag_id: str) -> list[Run]:
        """The oldest first."""
        found = self.ask("GET", f"/api/v2/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
        return [_run(one) for one in sorted(found, key=lambda one: str(one["run_after"]))]

    def await_new(self, dag_id: str, before: list[Run], patience_sec: float) -> Run:
        """A run that nobody here has started."""
        known = {one.run_id for one in before}

        def there() -> Run | None:
            return next((one for one in self.runs(dag_id) if one.run_id not in known), None)

        found: Run = await_that(there, f"a run of {dag_id}", patience_sec)
        return found

    def run(self, dag_id: str, run_id: str) -> Run:
        return _run(self.ask("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"))

    def await_end(self, run: Run, patience_sec: float) -> Run:
        def ended() -> Run | None:
            found = self.run(run.dag_id, run.run_id)
            return found if found.has_ended else None

        found: Run = await_that(ended, f"the end of {run.dag_id} {run.run_id}", patience_sec)
        return found

    def tasks(self, run: Run) -> dict[str, str]:
        """The state of each task."""
        path = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances"
        found = self.ask("GET", path)["task_instances"]
        return {str(one["task_id"]): str(one["state"]) for one in found}

    def await_question(self, dag_id: str, patience_sec: float) -> Question:
        """A task that waits for a person, in whichever run."""
        found: list[Question] = await_that(
            lambda: self.questions(dag_id), f"a question of {dag_id}", patience_sec
        )
        return found[0]

    def questions(self, dag_id: str) -> list[Question]:
        path = f"/api/v2/dags/{dag_id}/dagRuns/~/hitlDetails?response_received=false"
        tasks = [one["task_instance"] for one in self.ask("GET", path)["hitl_details"]]
        found = [Question(self.run(dag_id, one["dag_run_id"]), one["task_id"]) for one in tasks]
        return [one for one in found if not one.run.has_ended]

    def await_answered(self, run: Run, option: str, patience_sec: float) -> Run:
        """The end of a run; what Airflow asks anew, after a fault of its own, is answered anew."""

        def ended() -> Run | None:
            for one in self.questions(run.dag_id):
                if one.run.run_id == run.run_id:
                    self.answer(one, option)
            found = self.run(run.dag_id, run.run_id)
            return found if found.has_ended else None

        found: Run = await_that(ended, f"the end of {run.dag_id} {run.run_id}", patience_sec)
        return found

    def answer(self, question: Question, option: str) -> httpx.Response:
        run = question.run
        at = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/{question.task_id}/-1"
        given = {"chosen_options": [option], "params_input": {}}
        return self.reply("PATCH", f"{at}/hitlDetails", given)

    def set_success(self, question: Question) -> httpx.Response:
        """What somebody does who wants a task to count as done though nobody has answered it."""
        run = question.run
        at = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/{question.task_id}"
        return self.reply("PATCH", at, {"new_state": "success"})

    def link(self, run: Run) -> str:
        return f"{self.url}/dags/{run.dag_id}/runs/{run.run_id}"


def await_that(there: Callable[[], Any], what: str, patience_sec: float) -> Any:
    deadline = time.monotonic() + patience_sec
    while not (found := there()):
        if time.monotonic() > deadline:
            raise Refused(f"waited {patience_sec:.0f} s in vain for {what}")
        interrupt.sleep(_LOOK_SEC)
    return found


def _run(found: dict[str, Any]) -> Run:
    return Run(found["dag_id"], found["dag_run_id"], found["state"], found["run_type"])
