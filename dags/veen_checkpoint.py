"""### Create a recorder checkpoint
Runs on a schedule in minutes, and after a number of events. Each checkpoint is verified: its
signature, its order after the one before, and the consistency of the log with it. The run is
skipped if no stream has new events.

Manually: `veen recorder checkpoint create` and `veen recorder checkpoint verify`.
"""

from datetime import timedelta

from airflow.sdk import Asset, AssetOrTimeSchedule, AssetWatcher, DeltaTriggerTimetable, dag
from veen_airflow.commands import checkpoint_create, checkpoint_verify
from veen_airflow.operators import VeenOperator
from veen_airflow.results import checkpoint_of
from veen_airflow.zone import CHECKPOINT, VOLUME, dag_defaults, zone
from veen_watch import VolumeTrigger

ZONE = zone()
BY_VOLUME = Asset(
    VOLUME, watchers=[AssetWatcher(name="veen_volume", trigger=VolumeTrigger(str(ZONE.file)))]
)
SCHEDULE = AssetOrTimeSchedule(
    timetable=DeltaTriggerTimetable(timedelta(minutes=ZONE.dags.checkpoint_minutes)),
    assets=[BY_VOLUME],
)


@dag(schedule=SCHEDULE, **dag_defaults(ZONE, "recorder", __doc__))
def veen_checkpoint() -> None:
    create = VeenOperator(
        task_id="create",
        argv=checkpoint_create(ZONE),
        artefacts=checkpoint_of("signed"),
        runbook="A checkpoint, now",
    )
    verify = VeenOperator(
        task_id="verify",
        argv=checkpoint_verify(ZONE),
        artefacts=checkpoint_of("verified"),
        runbook="After an incident: does the last checkpoint still hold?",
        outlets=[Asset(CHECKPOINT)],
    )
    create >> verify


veen_checkpoint()
