"""Alarms: what people must hear of, kept for the page of the zone until the task has succeeded."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from veen_made import Made, keep, known

if TYPE_CHECKING:
    from recorder.zone import Zone

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

    def __init__(self, key: str, what: str, made: Sequence[Made] = ()) -> None:
        super().__init__(what)
        self.key = key
        self.made = tuple(made)


def keep_alarm(zone: Zone, alarm: Alarm, context: Mapping[str, Any], section: str) -> None:
    """``section`` of the runbook says what to do."""
    for one in alarm.made:
        keep(zone, one, context)
    name = _incident(zone, f"{context['ti'].dag_id}-{alarm.key}")
    summary = {"what": str(alarm), "runbook": section}
    keep(zone, Made(kind=KIND, id=name, state=RAISED, summary=summary), context)


def keep_failure(zone: Zone, context: Mapping[str, Any], what: str) -> None:
    """A task that has failed for good shows on the page; one that raised an alarm does already."""
    from recorder.artefact import standing  # noqa: PLC0415 - as in keep

    task = context["ti"]
    told_of = (one for one in standing(zone.folder, _MOST) if one.dag_id == task.dag_id)
    runs = {
        run
        for one in told_of
        if one.task_id == task.task_id
        for run in (one.run_id, one.seen.run_id if one.seen else "")
    }
    if task.run_id not in runs:
        found = _SECTION.search(what)
        section = found[1] if found else RUN_FAILED
        told = what[: found.start()].rstrip() if found else what
        keep_alarm(zone, Alarm(f"{task.task_id}-failed", told), context, section)


def end_alarms(zone: Zone, context: Mapping[str, Any]) -> None:
    """What a task has raised is over once it succeeds; the run that raised it stays named."""
    from recorder.artefact import OVER, BadArtefact, standing  # noqa: PLC0415 - as in keep

    task = context["ti"]
    try:
        found = standing(zone.folder, _MOST)
    except BadArtefact as error:
        _LOG.warning("no alarm is ended before this is corrected: %s", error)
        return
    for one in found:
        if (one.dag_id, one.task_id) == (task.dag_id, task.task_id):
            keep(zone, Made(kind=KIND, id=one.id, state=OVER, summary=one.summary), context)


def _incident(zone: Zone, name: str) -> str:
    """The alarm that stands; one that comes back after it was over is another one."""
    from recorder.artefact import OVER  # noqa: PLC0415 - as in keep

    number, found = 1, name
    while known(zone, KIND, found) == OVER:
        number += 1
        found = f"{name}.{number}"
    return found
