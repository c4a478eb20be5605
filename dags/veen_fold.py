"""### Fold the archived streams, and state what they came to
After each push. The table of events is written by a Spark job, and only where the zone's file asks
for plaintext at rest; otherwise that step says that it is skipped. Then each stream is folded into
a state, a snapshot states its hash, and the snapshot is verified from the log.

By hand: `veen snapshot create` and `veen snapshot verify`.
"""

from airflow.sdk import Asset, dag
from veen_airflow.operators import SparkOperator, VeenOperator
from veen_airflow.tasks import events_arguments, folded, snapshot_argv, terms_argv
from veen_airflow.zone import ARCHIVE, dag_defaults, zone

ZONE = zone()
FOLD = "A fold or its snapshot does not hold"
EMPTY = "NOTHING_ARCHIVED"


@dag(schedule=[Asset(ARCHIVE)], **dag_defaults(ZONE, "recorder", __doc__))
def veen_fold() -> None:
    terms = VeenOperator(task_id="terms", argv=terms_argv, runbook=FOLD)
    events = SparkOperator(
        task_id="events", job="events_table", arguments=events_arguments, runbook=FOLD
    )
    snapshots = VeenOperator(
        task_id="snapshots", argv=snapshot_argv("create"), refusals=(EMPTY,), runbook=FOLD,
        trigger_rule="none_failed",
    )  # fmt: skip
    verify = VeenOperator(
        task_id="verify", argv=snapshot_argv("verify"), artefacts=folded, runbook=FOLD
    )
    terms >> events >> snapshots >> verify


veen_fold()
