"""What people answered, read from Airflow's own human-in-the-loop record over its REST API.

A task of Airflow may read its own record only, so the import logs in with an account that may read
``veen_import`` and nothing else (plugins/veen_auth.py).
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from veen_made import Refusal
from veen_notify import NoRedirect
from veen_zone import zone

from veen.errors import VeenError

USER: Final = "VEEN_IMPORT_AIRFLOW_USER"
PASSWORD: Final = "VEEN_IMPORT_AIRFLOW_PASSWORD"  # noqa: S105 - the name of a variable
"""Where Airflow has another auth manager than the zone's: an account that may read veen_import."""

_ACCOUNT: Final = "import"
_TIMEOUT_SEC: Final = 30.0
_MOST: Final = 100
_MOST_BYTES: Final = 16 << 20


class AnswersUnread(VeenError):
    """Airflow does not tell what people answered; to ask again may help."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One approval task as Airflow has it. ``body`` is None if it never put its question,
    ``person`` None if nobody has answered it.
    """

    task_id: str
    state: str | None
    ti_id: str
    body: str | None = None
    person_id: str | None = None
    person: str | None = None
    decision: str | None = None


def recorded(context: Mapping[str, Any]) -> dict[str, Asked]:
    """Every task of this run by its id, with the answer of those that asked one."""
    run = f"/api/v2/dags/{context['ti'].dag_id}/dagRuns/{quote(context['run_id'], safe='')}"
    token = str(_ask("POST", "/auth/token", _account())["access_token"])
    tasks = _ask("GET", f"{run}/taskInstances?limit={_MOST}", token=token)
    details = _ask("GET", f"{run}/hitlDetails?limit={_MOST}", token=token)
    found = {
        one["task_id"]: Asked(one["task_id"], one["state"], str(one["id"]))
        for one in tasks["task_instances"]
    }
    return found | {one.task_id: one for one in map(_asked, details["hitl_details"])}


def _asked(detail: Mapping[str, Any]) -> Asked:
    task, who = detail["task_instance"], detail["responded_by_user"] or {}
    chosen = detail["chosen_options"] or [None]
    return Asked(
        task_id=task["task_id"],
        state=task["state"],
        ti_id=str(task["id"]),
        body=detail["body"],
        person_id=who.get("id") if detail["response_received"] else None,
        person=who.get("name") if detail["response_received"] else None,
        decision=chosen[0] if len(chosen) == 1 else None,
    )


def _account() -> dict[str, str]:
    """From the environment, or from the file of passwords that the zone's Airflow has."""
    from airflow.sdk.configuration import conf  # noqa: PLC0415 - a DAG is parsed without it

    if USER in os.environ:
        return {"username": os.environ[USER], "password": os.environ.get(PASSWORD, "")}
    file = conf.get("core", "simple_auth_manager_passwords_file", fallback="")
    try:
        password = json.loads(Path(file or os.devnull).read_bytes())[_ACCOUNT]
    except (OSError, ValueError, KeyError):
        raise Refusal(
            f"no account to read the answers with: {file or 'no file of passwords'} has none for "
            f"{_ACCOUNT!r}. Start Airflow's api-server again, which makes one, or set {USER} and "
            f"{PASSWORD} to an account that may read veen_import"
        ) from None
    return {"username": _ACCOUNT, "password": str(password)}


def _ask(
    method: str, path: str, given: Mapping[str, Any] | None = None, token: str | None = None
) -> Mapping[str, Any]:
    """The JSON object of Airflow's answer, or AnswersUnread."""
    url = zone().airflow.url
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = None if given is None else json.dumps(given).encode()
    request = urllib.request.Request(  # noqa: S310 - http or https
        f"{url}{path}", body, headers, method=method
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)
    try:
        with opener.open(request, timeout=_TIMEOUT_SEC) as reply:
            found = json.loads(reply.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        raise AnswersUnread(
            f"Airflow at {url} refused {method} {path} with {error.code}; expected that the "
            "account of the import may read it"
        ) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise AnswersUnread(
            f"Airflow at {url} gave no answer to {method} {path}: {error}; nothing goes in before "
            "it says who approved it"
        ) from error
    if not isinstance(found, dict):
        raise AnswersUnread(f"Airflow at {url} answered {method} {path} with no JSON object")
    return found
