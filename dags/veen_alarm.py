"""Alarms: what people must hear of, kept for the page of the zone until the task has succeeded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from veen_made import Made, keep, known

if TYPE_CHECKING:
    from recorder.zone import Zone

KIND: Final = "alarm"
RAISED: Final = "raised"
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


def keep_alarm(zone: Zone, alarm: Alarm, context: Mapping[str, Any]) -> None:
    for one in alarm.made:
        keep(zone, one, context)
    name = _incident(zone, f"{context['ti'].dag_id}-{alarm.key}")
    keep(zone, Made(kind=KIND, id=name, state=RAISED, summary={"what": str(alarm)}), context)


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
