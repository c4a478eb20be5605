"""### Archive sealed chunks to object storage
Runs after each checkpoint, while the hub is running and without its lock. The push is idempotent:
an interrupted push is completed by the next one. Then the archive is verified to be complete and to
belong to this hub. The run is skipped if nothing is new or the zone has no `[storage]`.

Manually: `veen archive push` and `veen archive verify`.
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
