"""### Anchor recorder checkpoints outside the hub
Runs after each checkpoint and on its own schedule. It publishes the pending anchors, retries failed
ones, and verifies all anchors of the latest checkpoint offline. An anchor later than
`alarm_after_min` raises an alarm.

Manually: `veen anchor publish --due`, `veen anchor list`.
"""

from datetime import timedelta

from airflow.sdk import Asset, AssetOrTimeSchedule, DeltaTriggerTimetable, dag
from veen_airflow.commands import anchor_list, anchor_publish, checkpoint_verify
from veen_airflow.operators import VeenOperator
from veen_airflow.results import anchors_of, verify_lateness
from veen_airflow.zone import CHECKPOINT, dag_defaults, zone

ZONE = zone()
SCHEDULE = AssetOrTimeSchedule(
    timetable=DeltaTriggerTimetable(timedelta(minutes=ZONE.dags.anchor_minutes)),
    assets=[Asset(CHECKPOINT)],
)


@dag(schedule=SCHEDULE, **dag_defaults(ZONE, "recorder", __doc__))
def veen_anchor() -> None:
    publish = VeenOperator(
        task_id="publish",
        argv=[*anchor_publish(ZONE), "--due"],
        runbook="An anchor is late",
    )
    verify = VeenOperator(
        task_id="verify",
        argv=[*checkpoint_verify(ZONE), "--offline"],
        artefacts=anchors_of,
        runbook="After an incident: does the last checkpoint still hold?",
    )
    lateness = VeenOperator(
        task_id="lateness",
        argv=anchor_list(ZONE),
        artefacts=verify_lateness,
        runbook="An anchor is late",
        trigger_rule="all_done",
    )
    publish >> [verify, lateness]


veen_anchor()
