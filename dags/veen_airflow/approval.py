"""Approval of an import by people: the question, Airflow's record of the answers, the decision.

The question lists everything that is approved as a table. What does not fit is left out and asked
by the next run, so that exactly what was shown is approved. Airflow renders the text as GitHub
Flavored Markdown and drops HTML.

A task may read only its own record, so that the import reads the answers over Airflow's REST API,
with an account that may read ``veen_import`` and nothing else (plugins/veen_auth.py). An answer
counts if Airflow's human-in-the-loop record has it for this try of the task, if the task ran to its
end and noted the same answer, and if the text that was shown is that of this run. A task that was
set to success by hand has neither record nor trace, and is refused.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from veen.errors import VeenError
from veen_airflow.alerts import NoRedirect
from veen_airflow.artefacts import DagRefusal
from veen_airflow.results import read_run_file, remove_run_file, write_run_file
from veen_airflow.zone import zone

USER: Final = "VEEN_IMPORT_AIRFLOW_USER"
PASSWORD: Final = "VEEN_IMPORT_AIRFLOW_PASSWORD"  # noqa: S105 - the name of a variable
"""An account that may read veen_import, if Airflow has another auth manager than the zone's."""

_ACCOUNT: Final = "import"
_TIMEOUT_SEC: Final = 30.0
_MOST: Final = 100
_MOST_BYTES: Final = 16 << 20
MOST_ROWS: Final = 100
MOST_CHARS: Final = 20_000
"""The size limit of the rows of a question; at least one row is always shown."""
FILE: Final = "question"
_HEAD: Final = (
    "| | Bundle | Stream | Events | Count | Age |\n"
    "|---:|:---|:---|:---|---:|---:|\n"
)  # fmt: skip
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9 ._/:@+=,;()#'-]")
_DAY_SEC: Final = 86_400
_MOST_OBSTRUCTED: Final = 10
APPROVE: Final = "Approve"
REJECT: Final = "Reject"
_SUCCESS: Final = "success"


class AnswersUnread(VeenError):
    """Airflow's record of the answers cannot be read; a retry may help."""


@dataclass(frozen=True, slots=True)
class ApprovalTask:
    """An approval task in Airflow's record. ``body`` is None if it never asked its question,
    ``person`` None if nobody has answered it.
    """

    task_id: str
    state: str | None
    ti_id: str
    body: str | None = None
    person_id: str | None = None
    person: str | None = None
    decision: str | None = None


def recorded(context: Mapping[str, Any]) -> dict[str, ApprovalTask]:
    """Every task of this run by its id, approval tasks with their answer."""
    run = f"/api/v2/dags/{context['ti'].dag_id}/dagRuns/{quote(context['run_id'], safe='')}"
    token = str(_ask("POST", "/auth/token", _account())["access_token"])
    tasks = _ask("GET", f"{run}/taskInstances?limit={_MOST}", token=token)
    details = _ask("GET", f"{run}/hitlDetails?limit={_MOST}", token=token)
    by_task = {
        task["task_id"]: ApprovalTask(task["task_id"], task["state"], str(task["id"]))
        for task in tasks["task_instances"]
    }
    return by_task | {task.task_id: task for task in map(_asked, details["hitl_details"])}


def _asked(detail: Mapping[str, Any]) -> ApprovalTask:
    task, who = detail["task_instance"], detail["responded_by_user"] or {}
    chosen = detail["chosen_options"] or [None]
    return ApprovalTask(
        task_id=task["task_id"],
        state=task["state"],
        ti_id=str(task["id"]),
        body=detail["body"],
        person_id=who.get("id") if detail["response_received"] else None,
        person=who.get("name") if detail["response_received"] else None,
        decision=chosen[0] if len(chosen) == 1 else None,
    )


def _account() -> dict[str, str]:
    """The account, from the environment or the password file of the zone's Airflow."""
    from airflow.sdk.configuration import conf  # noqa: PLC0415 - a DAG is parsed without it

    if USER in os.environ:
        return {"username": os.environ[USER], "password": os.environ.get(PASSWORD, "")}
    file = conf.get("core", "simple_auth_manager_passwords_file", fallback="")
    try:
        password = json.loads(Path(file or os.devnull).read_bytes())[_ACCOUNT]
    except (OSError, ValueError, KeyError):
        raise DagRefusal(
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
            document = json.loads(reply.read(_MOST_BYTES))
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
    if not isinstance(document, dict):
        raise AnswersUnread(f"Airflow at {url} answered {method} {path} with no JSON object")
    return document


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """A question; ``bundles`` are the ids in its table, ``later`` is how many did not fit."""

    bundles: tuple[str, ...]
    body: str
    later: int


def compose(
    admissible: Sequence[Mapping[str, Any]], obstructed: Sequence[Mapping[str, Any]], refused: int
) -> ApprovalQuestion:
    """Compose the question. ``admissible`` are rows of ``veen bridge verify`` that may be imported;
    ``obstructed`` are valid and cannot be imported now; ``refused`` is how many were refused.
    """
    rows, size = list[str](), 0
    for number, carrier in enumerate(admissible, 1):
        row = _row(number, carrier)
        if rows and (len(rows) == MOST_ROWS or size + len(row) > MOST_CHARS):
            break
        rows.append(row)
        size += len(row)
    shown = admissible[: len(rows)]
    later = len(admissible) - len(rows)
    body = f"{_lead(shown, later)}\n\n{_HEAD}{''.join(rows)}{_rest(obstructed, refused)}"
    return ApprovalQuestion(tuple(str(carrier["bundle_id"]) for carrier in shown), body, later)


def asked(context: Mapping[str, Any]) -> ApprovalQuestion:
    """The question of this run, as written by the task ``verify``."""
    question = read_run_file(context, FILE)
    if question is None:
        return ApprovalQuestion((), "", 0)
    return ApprovalQuestion(tuple(question["bundles"]), question["body"], question["later"])


def document(question: ApprovalQuestion) -> dict[str, Any]:
    return asdict(question)


def plain(text: object) -> str:
    """Text without Markdown syntax, since names come from a medium."""
    return _UNSAFE.sub(lambda item: f"(U+{ord(item[0]):04X})", str(text))


def _lead(shown: Sequence[Mapping[str, Any]], later: int) -> str:
    events = sum(_count(carrier) for carrier in shown)
    lead = f"**{len(shown)} bundles, {events} events.** Your answer is about these and no others."
    if later:
        lead += f" {later} more bundles do not fit here: the next run asks about them."
    return lead


def _row(number: int, carrier: Mapping[str, Any]) -> str:
    age = carrier.get("age_sec")
    detail = "" if age is None else f"{age // _DAY_SEC} d"
    if carrier.get("warning"):
        detail = f"**{detail}**: {plain(carrier['warning'])}"
    span = f"{carrier['from_seq']} to {carrier['to_seq']}"
    return (
        f"| {number} | `{carrier['bundle_id']}` | {plain(carrier['stream'])} | {span} "
        f"| {_count(carrier)} "
        f"| {detail} |\n"
    )


def _rest(obstructed: Sequence[Mapping[str, Any]], refused: int) -> str:
    """What is not part of the question: obstructed and refused carriers."""
    text = ""
    if obstructed:
        text += f"\nNot asked about, {len(obstructed)} valid bundles that cannot go in now:\n\n"
        for carrier in obstructed[:_MOST_OBSTRUCTED]:
            text += f"- `{carrier['bundle_id'][:16]}` {plain(carrier['obstacle'])}\n"
    if refused:
        text += f"\nRefused carriers: {refused}. The log of the task `verify` names them.\n"
    return text


def _count(carrier: Mapping[str, Any]) -> int:
    return int(carrier["to_seq"]) - int(carrier["from_seq"]) + 1


Context = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """The note of an approval task that ended with an answer."""

    ti_id: str
    person_id: str
    person: str
    decision: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision: ``refused`` is why no approval counts; else ``people`` have approved, or one
    has rejected.
    """

    people: tuple[str, ...] = ()
    is_rejected: bool = False
    refused: str = ""

    @property
    def said(self) -> list[str]:
        if self.refused:
            return []
        return [f"{person}: {REJECT if self.is_rejected else APPROVE}" for person in self.people]


def task_of(number: int) -> str:
    return f"approve_{number}"


def note_trace(context: Context, number: int, trace: Trace) -> None:
    write_run_file(context, f"trace-{number}", asdict(trace))


def forget_trace(context: Context, number: int) -> None:
    """Remove the trace of an earlier answer, when the question is asked again."""
    remove_run_file(context, f"trace-{number}")


def traces(context: Context, before: int) -> list[Trace | None]:
    """The traces of the approvals 1 to ``before`` - 1."""
    documents = (read_run_file(context, f"trace-{item}") for item in range(1, before))
    return [Trace(**item) if item else None for item in documents]


def decide(
    question: ApprovalQuestion,
    recorded: Mapping[str, ApprovalTask],
    noted: Sequence[Trace | None],
    allowed: Sequence[str],
) -> Decision:
    """Decide from the record and ``noted``, a trace for each required person; ``allowed`` is empty
    if anybody may approve.
    """
    people: dict[str, str] = {}
    for number, trace in enumerate(noted, 1):
        task, approval_task = task_of(number), recorded.get(task_of(number))
        wrong = _doubt(task, approval_task, trace, question, allowed)
        if wrong or trace is None:
            return Decision(refused=wrong)
        if trace.decision == REJECT:
            return Decision(people=(trace.person,), is_rejected=True)
        if trace.person_id in people:
            return Decision(
                refused=f"{trace.person} answered twice; {len(noted)} different people are needed"
            )
        people[trace.person_id] = trace.person
    return Decision(people=tuple(people.values()))


def _doubt(
    task: str,
    approval_task: ApprovalTask | None,
    trace: Trace | None,
    question: ApprovalQuestion,
    allowed: Sequence[str],
) -> str:
    """Why an answer does not count; empty if it does."""
    if approval_task is None or approval_task.person_id is None:
        state = approval_task.state if approval_task else None
        how = "its state was set by hand" if state == _SUCCESS else f"its state is {state}"
        return f"Airflow has no answer of a person to task {task}; {how}"
    if trace is None or approval_task.state != _SUCCESS or trace.ti_id != approval_task.ti_id:
        return f"task {task} did not end by its answer; its state was set by hand"
    said = (approval_task.person_id, approval_task.decision)
    if said != (trace.person_id, trace.decision) or approval_task.decision not in (APPROVE, REJECT):
        return f"Airflow's record of task {task} says {said}, its own note {trace}"
    if approval_task.body != question.body:
        return f"task {task} showed another text than this run asks about"
    if allowed and approval_task.person_id not in allowed:
        return f"{approval_task.person} answered task {task} and is not among the people that may"
    return ""
