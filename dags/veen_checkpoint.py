"""### Have the hub sign how far every stream goes
Every few minutes, and after so many events. Each checkpoint is verified: the hub signed it, it
follows the one before, and the log still begins with it. Where no stream has moved there is
nothing to sign, and the run is skipped.

By hand: `veen recorder checkpoint create` and `veen recorder checkpoint verify`.
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
