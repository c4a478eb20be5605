"""Alarms: what people must hear of, kept for the page of the zone until the task has succeeded.

How people hear of what went wrong: the port, a log, and a webhook.

A notice has ids, counts and a section of the runbook; never payloads, keys or tokens.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from veen_airflow.artefacts import DagArtefact, keep, known

if TYPE_CHECKING:
    from zone.config import ZoneConfig
import http.client
import json
import os
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

KIND: Final = "alarm"
RAISED: Final = "raised"
RUN_FAILED: Final = "A run of a DAG has failed"
"""The section of the runbook for a failure that names none."""
_SECTION: Final = re.compile(r'What to do: docs/runbook\.md, section "([^"]+)"')
_MOST: Final = 1_000
_LOG = logging.getLogger(__name__)


class Alarm(Exception):
    """Something that people must hear of; ``key`` names it, so that told again it is one thing.

    ``made`` is what there is all the same, such as the report that tells of it.
    """

    def __init__(self, key: str, what: str, made: Sequence[DagArtefact] = ()) -> None:
        super().__init__(what)
        self.key = key
        self.made = tuple(made)


def keep_alarm(zone: ZoneConfig, alarm: Alarm, context: Mapping[str, Any], section: str) -> None:
    """``section`` of the runbook says what to do."""
    for item in alarm.made:
        keep(zone, item, context)
    name = _incident(zone, f"{context['ti'].dag_id}-{alarm.key}")
    summary = {"what": str(alarm), "runbook": section}
    keep(zone, DagArtefact(kind=KIND, id=name, state=RAISED, summary=summary), context)


def keep_failure(zone: ZoneConfig, context: Mapping[str, Any], what: str) -> None:
    """A task that has failed for good shows on the page; one that raised an alarm does already."""
    from zone.artefacts import standing  # noqa: PLC0415 - as in keep

    task = context["ti"]
    told_of = (item for item in standing(zone.folder, _MOST) if item.dag_id == task.dag_id)
    runs = {
        run
        for item in told_of
        if item.task_id == task.task_id
        for run in (item.run_id, item.seen.run_id if item.seen else "")
    }
    if task.run_id not in runs:
        match = _SECTION.search(what)
        section = match[1] if match else RUN_FAILED
        detail = what[: match.start()].rstrip() if match else what
        keep_alarm(zone, Alarm(f"{task.task_id}-failed", detail), context, section)


def end_alarms(zone: ZoneConfig, context: Mapping[str, Any]) -> None:
    """What a task has raised is over once it succeeds; the run that raised it stays named."""
    from zone.artefacts import OVER, BadArtefact, standing  # noqa: PLC0415 - as in keep

    task = context["ti"]
    try:
        result = standing(zone.folder, _MOST)
    except BadArtefact as error:
        _LOG.warning("no alarm is ended before this is corrected: %s", error)
        return
    for item in result:
        if (item.dag_id, item.task_id) == (task.dag_id, task.task_id):
            keep(
                zone, DagArtefact(kind=KIND, id=item.id, state=OVER, summary=item.summary), context
            )


def _incident(zone: ZoneConfig, name: str) -> str:
    """The alarm that stands; one that comes back after it was over is another one."""
    from zone.artefacts import OVER  # noqa: PLC0415 - as in keep

    number, result = 1, name
    while known(zone, KIND, result) == OVER:
        number += 1
        result = f"{name}.{number}"
    return result


TOKEN: Final = "VEEN_NOTIFY_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable with the bearer token of the webhook, where it asks for one."""

_TIMEOUT_SEC: Final = 10.0
_LONGEST: Final = 2_000
_REDIRECT: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """``what`` is one plain sentence with what to do next."""

    zone: str
    dag_id: str
    run_id: str
    task_id: str
    what: str


class Notifier(Protocol):
    def tell(self, notice: Notice) -> None:
        """Bring a notice to people. What cannot be brought is logged, and fails nothing."""


class LogNotifier:
    def tell(self, notice: Notice) -> None:
        _LOG.warning("NOTICE of zone %s, %s: %s", notice.zone, notice.dag_id, notice.what)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other refusal: the token goes to the given URL alone."""

    def redirect_request(self, *_given: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(NoRedirect)


class WebhookNotifier:
    """Posts the notice as JSON, and follows no redirect; it is logged as well."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url
        self._token = token

    def tell(self, notice: Notice) -> None:
        LogNotifier().tell(notice)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        body = json.dumps(asdict(notice), sort_keys=True).encode()
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310 - http or https
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_SEC):
                _LOG.info("the webhook took the notice")
        except (OSError, http.client.HTTPException) as error:
            # What else stands in a URL is often a secret.
            _LOG.warning("%s did not take the notice: %s", _place(self._url), _why(error))


def _place(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"the webhook at {parts.scheme}://{host}"


def _why(error: OSError | http.client.HTTPException) -> str:
    """Without the words of a server, or of a library, that may have the URL in them."""
    if isinstance(error, urllib.error.HTTPError):
        is_redirect = _REDIRECT <= error.code < _REDIRECT + 100
        more = (
            "; redirects are not followed, so name the URL that it points to" if is_redirect else ""
        )
        return f"it answered {error.code}{more}"
    return str(getattr(error, "reason", "") or type(error).__name__)


def notifier(where: str) -> Notifier:
    """``log``, or the URL of a webhook."""
    return LogNotifier() if where == "log" else WebhookNotifier(where, os.environ.get(TOKEN))


def tell(context: Mapping[str, Any], what: str) -> None:
    """Tell of something in the run at hand, in the way that the zone's file says."""
    from zone.config import VARIABLE, load  # noqa: PLC0415 - only when there is something to tell

    zone, task = load(Path(os.environ[VARIABLE])), context["ti"]
    notifier(zone.dags.notify).tell(
        Notice(
            zone=zone.name,
            dag_id=task.dag_id,
            run_id=task.run_id,
            task_id=task.task_id,
            what=what[:_LONGEST],
        )
    )


def tell_of_failure(context: Mapping[str, Any]) -> None:
    """The callback of every task: it has failed, and is not tried again."""

    from veen.errors import VeenError  # noqa: PLC0415
    from zone.config import VARIABLE, load  # noqa: PLC0415

    what = str(context.get("exception") or "the task failed; its log tells why")
    tell(context, what)
    try:
        keep_failure(load(Path(os.environ[VARIABLE])), context, what)
    except (OSError, VeenError) as error:
        _LOG.warning("the failure cannot be shown on the page: %s", error)
