"""Somebody at an Airflow over its REST API; every wait ends, and says what it waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx

TIMEOUT_SEC = 400.0


class Run(NamedTuple):
    dag_id: str
    run_id: str

    @property
    def path(self) -> str:
        return f"/api/v2/dags/{self.dag_id}/dagRuns/{self.run_id}"


class AirflowPerson:
    def __init__(self, url: str, name: str, password: str) -> None:
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=60)
        token = self.ask("POST", "/auth/token", username=name, password=password)["access_token"]
        self._http.headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, **given: Any) -> Any:
        reply = self._http.request(method, path, json=given or None)
        assert reply.is_success, (method, path, reply.status_code, reply.text)
        return reply.json()

    def start(self, dag_id: str) -> Run:
        """Once the DAG processor has read it."""
        _await(lambda: self._knows(dag_id), f"DAG {dag_id}")
        self.ask("PATCH", f"/api/v2/dags/{dag_id}", is_paused=False)
        begun = self.ask("POST", f"/api/v2/dags/{dag_id}/dagRuns", logical_date=None, conf={})
        return Run(dag_id, begun["dag_run_id"])

    def end(self, run: Run) -> str:
        """How it ended."""

        def ended() -> str | None:
            state = str(self.ask("GET", run.path)["state"])
            return state if state in ("success", "failed") else None

        return str(_await(ended, f"the end of {run}"))

    def tasks(self, run: Run) -> dict[str, str]:
        result = self.ask("GET", f"{run.path}/taskInstances")["task_instances"]
        return {item["task_id"]: item["state"] for item in result}

    def await_question(self, run: Run) -> None:
        _await(lambda: self.questions(run), f"a question of {run}")

    def questions(self, run: Run) -> list[Any]:
        """Those that nobody has answered."""
        path = f"{run.path}/hitlDetails?response_received=false"
        return list(self.ask("GET", path)["hitl_details"])

    def links(self, run: Run, task_id: str) -> dict[str, str]:
        return dict(self.ask("GET", f"{run.path}/taskInstances/{task_id}/links")["extra_links"])

    def _knows(self, dag_id: str) -> bool:
        return self._http.get(f"/api/v2/dags/{dag_id}").status_code == httpx.codes.OK


def _await(there: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + TIMEOUT_SEC
    while not (result := there()):
        assert time.monotonic() < deadline, f"waited {TIMEOUT_SEC:.0f} s in vain for {what}"
        time.sleep(0.5)
    return result
