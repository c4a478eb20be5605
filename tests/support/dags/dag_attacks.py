"""What somebody with an account of a zone's Airflow can try against an import that waits."""

from __future__ import annotations

from typing import Any

import httpx

from support.dags.dag_zones import People

FORGED = {"id": "operator", "person": "operator", "decision": "Approve"}


def run_path(question: dict[str, Any]) -> str:
    task = question["task_instance"]
    return f"/api/v2/dags/{task['dag_id']}/dagRuns/{task['dag_run_id']}"


def forged_xcom(who: httpx.Client, question: dict[str, Any]) -> int:
    """The answer of a person, as the XCom of the task that asks for it."""
    path = f"{run_path(question)}/taskInstances/approve_1/xcomEntries"
    given = {"key": "return_value", "value": FORGED, "map_index": -1}
    return who.post(path, json=given).status_code


def forged_state(who: httpx.Client, question: dict[str, Any], task: str = "approve_1") -> int:
    path = f"{run_path(question)}/taskInstances/{task}"
    return who.patch(path, json={"new_state": "success"}).status_code


def every_attack(people: People, name: str, question: dict[str, Any]) -> dict[str, int]:
    """What each attempt is answered with, by its name."""
    who, run = people.client(name), run_path(question)
    dag = run.partition("/dagRuns")[0]
    bulk = {
        "actions": [
            {"action": "update", "entities": [{"task_id": "approve_1", "new_state": "success"}]}
        ]
    }
    start: dict[str, Any] = {"logical_date": None, "conf": {}}
    clear = {"dry_run": False, "task_ids": ["verify"], "dag_run_id": "~"}
    answer = {"chosen_options": ["Approve"], "params_input": {}}
    asked = {
        "write XCom": forged_xcom(who, question),
        "set a task's state": forged_state(who, question),
    }
    for what, method, path, given in (
        ("set states in bulk", "PATCH", f"{run}/taskInstances", bulk),
        ("answer", "PATCH", f"{run}/taskInstances/approve_1/-1/hitlDetails", answer),
        ("clear", "POST", f"{dag}/clearTaskInstances", clear),
        ("end the run", "PATCH", run, {"state": "success"}),
        ("delete the run", "DELETE", run, None),
        ("start an import", "POST", f"{dag}/dagRuns", start),
        ("start a retention", "POST", "/api/v2/dags/veen_retention/dagRuns", start),
        ("pause", "PATCH", dag, {"is_paused": True}),
        ("read a variable", "GET", "/api/v2/variables", None),
        ("write a variable", "POST", "/api/v2/variables", {"key": "k", "value": "v"}),
        ("read connections", "GET", "/api/v2/connections", None),
        ("read the settings", "GET", "/api/v2/config", None),
        ("read the question", "GET", f"{run}/hitlDetails", None),
        ("read XCom", "GET", f"{run}/taskInstances/verify/xcomEntries", None),
        ("read all DAGs", "GET", "/api/v2/dags", None),
        ("read the page", "GET", "/veen/", None),
    ):
        asked[what] = who.request(method, path, json=given).status_code
    return asked
