"""The person in an import: who is asked, who may answer, and that nobody answers twice."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from veen_alarm import end_alarms
from veen_carriers import portion, undecided
from veen_decision import APPROVE, REJECT, Trace, forget_trace, note_trace, task_of, traces
from veen_failure import in_plain_words, told
from veen_imported import LEFT, asked_about, description
from veen_made import Nothing
from veen_notify import tell
from veen_run_files import write_run_file
from veen_zone import zone

from recorder.zone_acting import ApprovalSettings

APPROVAL: Final = "Approve an import"
_AGAIN: Final = 1_000
_LOG = logging.getLogger(__name__)


class MediumSensor(BaseSensorOperator):
    """Waits for a carrier that nobody has decided about; it holds no slot while it waits."""

    def __init__(self, *, poll_sec: int, **kwargs: Any) -> None:
        super().__init__(
            mode="reschedule",
            poke_interval=poll_sec,
            timeout=zone().dags.alarm_after_min * 60,
            soft_fail=True,
            **kwargs,
        )

    def poke(self, context: Any) -> PokeReturnValue:
        with in_plain_words(context, APPROVAL):
            found = undecided(context)
            taken = portion(found) if found else []
            write_run_file(context, "carriers", taken)
            write_run_file(context, LEFT, len(found) - len(taken))
            if found:
                end_alarms(zone(), context)
        _LOG.info(
            "%d carriers that nobody has decided about; this run takes up %d",
            len(found), len(taken),
        )  # fmt: skip
        return PokeReturnValue(is_done=bool(taken), xcom_value=taken)


def people(wanted: ApprovalSettings) -> list[ApprovalOperator]:
    """One question for each person that is needed, in turn."""
    numbers = range(1, wanted.needed + 1)
    return [ApprovalOperator(number=one, people=wanted.people) for one in numbers]


class ApprovalOperator(HITLOperator):
    """One person of those that are needed. There is no default and no timeout, ever."""

    def __init__(self, *, number: int, people: Sequence[str], **kwargs: Any) -> None:
        super().__init__(
            task_id=task_of(number),
            subject=f"Let in what came to zone {zone().name}? (person {number})",
            body="The bundles to be let in are listed when the question is asked.",
            options=[APPROVE, REJECT],
            assigned_users=[{"id": one, "name": one} for one in people] or None,
            # The same person again is asked again, as if nothing had been said.
            retries=_AGAIN,
            retry_delay=timedelta(seconds=1),
            **kwargs,
        )
        self._number = number

    def execute(self, context: Any) -> Any:
        with in_plain_words(context, APPROVAL):
            forget_trace(context, self._number)
            if not asked_about(context):
                raise Nothing("nothing came that asks for a decision")
            before = traces(context, self._number)
            if any(one is not None and one.decision == REJECT for one in before):
                raise Nothing("it is rejected already; one rejection is enough")
            self.body = description(context)
            tell(context, f"a decision is needed: {self.subject}")
        return super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        said = super().execute_complete(context, event)
        who = said.get("responded_by_user")
        if not who:
            why = "nobody has answered, and an import is never let in by default"
            raise AirflowFailException(told(why, APPROVAL))
        before = [one.person_id for one in traces(context, self._number) if one is not None]
        if who["id"] in before:
            raise AirflowException(
                f"{who['name']} has decided already, and another person must: we ask again"
            )
        (decision,) = said["chosen_options"]
        _LOG.info("%s by %s (%s)", decision, who["name"], who["id"])
        trace = Trace(str(context["ti"].id), who["id"], who["name"], decision)
        note_trace(context, self._number, trace)
        end_alarms(zone(), context)
        return {"decision": decision, "id": who["id"], "person": who["name"]}
