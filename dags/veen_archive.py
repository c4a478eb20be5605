"""### Bring what the hub has sealed to object storage
After each checkpoint. The push runs beside the hub and takes no lock; a second one writes nothing,
one that was cut off is completed by the next. Then the archive is checked to be complete and of
this hub. Where nothing is new, or the zone has no [storage], the run is skipped.

By hand: `veen archive push` and `veen archive verify`.
"""

from airflow.sdk import Asset, dag
from veen_airflow.commands import archive_verify
from veen_airflow.operators import VeenOperator
from veen_airflow.results import archive_of, push_argv
from veen_airflow.zone import ARCHIVE, CHECKPOINT, at_run, dag_defaults, zone

ZONE = zone()


@dag(schedule=[Asset(CHECKPOINT)], **dag_defaults(ZONE, "recorder", __doc__))
def veen_archive() -> None:
    push = VeenOperator(
        task_id="push",
        argv=push_argv,
        artefacts=archive_of("pushed"),
        runbook="The archive is behind, or refuses",
    )
    verify = VeenOperator(
        task_id="verify",
        argv=at_run(archive_verify),
        artefacts=archive_of("verified"),
        runbook="The archive is behind, or refuses",
        outlets=[Asset(ARCHIVE)],
    )
    push >> verify


veen_archive()
