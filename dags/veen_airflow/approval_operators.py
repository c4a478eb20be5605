"""Operators that wait for a medium, and for the people who approve an import."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from recorder.acting import ApprovalSettings
from veen_airflow.alerts import end_alarms, notify
from veen_airflow.approval import APPROVE, REJECT, Trace, forget_trace, note_trace, task_of, traces
from veen_airflow.artefacts import NothingToDo
from veen_airflow.imports import LEFT, asked_about, batch, description, undecided
from veen_airflow.operators import failure_text, translate_errors
from veen_airflow.results import write_run_file
from veen_airflow.zone import zone

APPROVAL: Final = "Approve an import"
_AGAIN: Final = 1_000
_LOG = logging.getLogger(__name__)


class MediumSensor(BaseSensorOperator):
    """Waits for an undecided carrier, without holding a worker slot."""

    def __init__(self, *, poll_sec: int, **kwargs: Any) -> None:
        super().__init__(
            mode="reschedule",
            poke_interval=poll_sec,
            timeout=zone().dags.alarm_after_min * 60,
            soft_fail=True,
            **kwargs,
        )

    def poke(self, context: Any) -> PokeReturnValue:
        with translate_errors(context, APPROVAL):
            carriers = undecided(context)
            taken = batch(carriers) if carriers else []
            write_run_file(context, "carriers", taken)
            write_run_file(context, LEFT, len(carriers) - len(taken))
            if carriers:
                end_alarms(zone(), context)
        _LOG.info(
            "%d carriers wait for a decision; this run asks about %d",
            len(carriers), len(taken),
        )  # fmt: skip
        return PokeReturnValue(is_done=bool(taken), xcom_value=taken)


def people(approval_settings: ApprovalSettings) -> list[ApprovalOperator]:
    """An approval task for each required person, in order."""
    numbers = range(1, approval_settings.needed + 1)
    return [ApprovalOperator(number=number, people=approval_settings.people) for number in numbers]


class ApprovalOperator(HITLOperator):
    """Asks one of the required people, without a default and without a timeout."""

    def __init__(self, *, number: int, people: Sequence[str], **kwargs: Any) -> None:
        super().__init__(
            task_id=task_of(number),
            subject=f"Import into zone {zone().name}? (approver {number})",
            body="The bundles to import are listed when the approval is requested.",
            options=[APPROVE, REJECT],
            assigned_users=[{"id": person, "name": person} for person in people] or None,
            # A second answer of the same person is discarded, and the question asked again.
            retries=_AGAIN,
            retry_delay=timedelta(seconds=1),
            **kwargs,
        )
        self._number = number

    def execute(self, context: Any) -> Any:
        with translate_errors(context, APPROVAL):
            forget_trace(context, self._number)
            if not asked_about(context):
                raise NothingToDo("no carrier needs a decision")
            before = traces(context, self._number)
            if any(trace is not None and trace.decision == REJECT for trace in before):
                raise NothingToDo("it is rejected already; one rejection is enough")
            self.body = description(context)
            notify(context, f"a decision is needed: {self.subject}")
        return super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        said = super().execute_complete(context, event)
        who = said.get("responded_by_user")
        if not who:
            why = "no answer was given, and nothing is imported without one"
            raise AirflowFailException(failure_text(why, APPROVAL))
        before = [trace.person_id for trace in traces(context, self._number) if trace is not None]
        if who["id"] in before:
            raise AirflowException(
                f"{who['name']} has answered already, expected another person; asking again"
            )
        (decision,) = said["chosen_options"]
        _LOG.info("%s by %s (%s)", decision, who["name"], who["id"])
        trace = Trace(str(context["ti"].id), who["id"], who["name"], decision)
        note_trace(context, self._number, trace)
        end_alarms(zone(), context)
        return {"decision": decision, "id": who["id"], "person": who["name"]}
