"""Alarms, which the zone's page lists until their task succeeds, and notices: a log or a webhook.

A notice has ids, counts and a section of the runbook; never payloads, keys or tokens.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from veen_airflow.artefacts import DagArtefact, artefact_state, write_artefact

if TYPE_CHECKING:
    from zone.config import ZoneConfig

KIND: Final = "alarm"
RAISED: Final = "raised"
RUN_FAILED: Final = "A run of a DAG has failed"
"""The section of the runbook for a failure that names none."""
_SECTION: Final = re.compile(r'What to do: docs/runbook\.md, section "([^"]+)"')
_MOST: Final = 1_000
_LOG = logging.getLogger(__name__)
TOKEN: Final = "VEEN_NOTIFY_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable with the bearer token of the webhook, if it needs one."""
_TIMEOUT_SEC: Final = 10.0
_LONGEST: Final = 2_000
_REDIRECT: Final = 300


class Alarm(Exception):
    """Something that people must know; ``key`` identifies it, so that a repeated alarm is the same.

    ``artefacts`` were made nevertheless, such as the report about it.
    """

    def __init__(self, key: str, what: str, artefacts: Sequence[DagArtefact] = ()) -> None:
        super().__init__(what)
        self.key = key
        self.artefacts = tuple(artefacts)


def store_alarm(zone: ZoneConfig, alarm: Alarm, context: Mapping[str, Any], section: str) -> None:
    """Store an alarm; ``section`` of the runbook says what to do."""
    for artefact in alarm.artefacts:
        write_artefact(zone, artefact, context)
    name = _incident(zone, f"{context['ti'].dag_id}-{alarm.key}")
    summary = {"what": str(alarm), "runbook": section}
    write_artefact(zone, DagArtefact(kind=KIND, id=name, state=RAISED, summary=summary), context)


def store_failure(zone: ZoneConfig, context: Mapping[str, Any], what: str) -> None:
    """Store an alarm for a task that failed for good, unless it raised an alarm itself."""
    from zone.artefacts import unresolved_alarms  # noqa: PLC0415 - as in keep

    task = context["ti"]
    alarms = (
        alarm for alarm in unresolved_alarms(zone.folder, _MOST) if alarm.dag_id == task.dag_id
    )
    runs = {
        run
        for alarm in alarms
        if alarm.task_id == task.task_id
        for run in (alarm.run_id, alarm.seen.run_id if alarm.seen else "")
    }
    if task.run_id not in runs:
        match = _SECTION.search(what)
        section = match[1] if match else RUN_FAILED
        detail = what[: match.start()].rstrip() if match else what
        store_alarm(zone, Alarm(f"{task.task_id}-failed", detail), context, section)


def end_alarms(zone: ZoneConfig, context: Mapping[str, Any]) -> None:
    """Resolve the alarms of a task, which has succeeded; they keep the run that raised them."""
    from zone.artefacts import OVER, BadArtefact, unresolved_alarms  # noqa: PLC0415 - as in keep

    task = context["ti"]
    try:
        alarms = unresolved_alarms(zone.folder, _MOST)
    except BadArtefact as error:
        _LOG.warning("no alarm is resolved until this is corrected: %s", error)
        return
    for alarm in alarms:
        if (alarm.dag_id, alarm.task_id) == (task.dag_id, task.task_id):
            write_artefact(
                zone,
                DagArtefact(kind=KIND, id=alarm.id, state=OVER, summary=alarm.summary),
                context,
            )


def _incident(zone: ZoneConfig, name: str) -> str:
    """The id of the unresolved alarm; an alarm that recurs after it was resolved has a new id."""
    from zone.artefacts import OVER  # noqa: PLC0415 - as in keep

    number, alarm_id = 1, name
    while artefact_state(zone, KIND, alarm_id) == OVER:
        number += 1
        alarm_id = f"{name}.{number}"
    return alarm_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message to people; ``what`` is a sentence with what to do next."""

    zone: str
    dag_id: str
    run_id: str
    task_id: str
    what: str


class Notifier(Protocol):
    def notify(self, notice: Notice) -> None:
        """Deliver a notice to people. A failure is logged, and not raised."""


class LogNotifier:
    def notify(self, notice: Notice) -> None:
        _LOG.warning("NOTICE of zone %s, %s: %s", notice.zone, notice.dag_id, notice.what)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error, so that the token is sent to the given URL only."""

    def redirect_request(self, *_given: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(NoRedirect)


class WebhookNotifier:
    """Posts the notice as JSON without following redirects, and logs it."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url
        self._token = token

    def notify(self, notice: Notice) -> None:
        LogNotifier().notify(notice)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        body = json.dumps(asdict(notice), sort_keys=True).encode()
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310 - http or https
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_SEC):
                _LOG.info("the webhook accepted the notice")
        except (OSError, http.client.HTTPException) as error:
            # The rest of a URL is often a secret.
            _LOG.warning("%s did not accept the notice: %s", _place(self._url), _why(error))


def _place(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"the webhook at {parts.scheme}://{host}"


def _why(error: OSError | http.client.HTTPException) -> str:
    """The reason, without text of a server or library that may contain the URL."""
    if isinstance(error, urllib.error.HTTPError):
        is_redirect = _REDIRECT <= error.code < _REDIRECT + 100
        more = (
            "; redirects are not followed, so name the URL that it points to" if is_redirect else ""
        )
        return f"it answered {error.code}{more}"
    return str(getattr(error, "reason", "") or type(error).__name__)


def notifier(where: str) -> Notifier:
    """The notifier for ``log`` or the URL of a webhook."""
    return LogNotifier() if where == "log" else WebhookNotifier(where, os.environ.get(TOKEN))


def notify(context: Mapping[str, Any], what: str) -> None:
    """Send a notice about the current run, as configured in the zone's file."""
    from zone.config import VARIABLE, load  # noqa: PLC0415 - only when there is something to tell

    zone, task = load(Path(os.environ[VARIABLE])), context["ti"]
    notifier(zone.dags.notify).notify(
        Notice(
            zone=zone.name,
            dag_id=task.dag_id,
            run_id=task.run_id,
            task_id=task.task_id,
            what=what[:_LONGEST],
        )
    )


def notify_failure(context: Mapping[str, Any]) -> None:
    """The failure callback of every task, after its last retry."""

    from veen.errors import VeenError  # noqa: PLC0415
    from zone.config import VARIABLE, load  # noqa: PLC0415

    what = str(context.get("exception") or "the task failed; see its log")
    notify(context, what)
    try:
        store_failure(load(Path(os.environ[VARIABLE])), context, what)
    except (OSError, VeenError) as error:
        _LOG.warning("the failure cannot be stored for the operators' page: %s", error)
