"""### Fold the archived streams and create snapshots
Runs after each push. A Spark job writes the table of events, only if `plaintext_at_rest` is set in
`[dags.fold]`; otherwise that task is skipped. Then each stream is folded into a state, a snapshot
attests its hash, and the snapshot is verified from the log.

Manually: `veen snapshot create` and `veen snapshot verify`.
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
