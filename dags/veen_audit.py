"""### Audit the archived log: every byte, signature and proof
Runs once a day and on demand, as a Spark job with one task for each chunk. Its report is recorded
as an event exactly once; a checkpoint that covers it is created and anchored. Faults fail the run.

Manually: `veen audit log --engine spark`.
"""

from airflow.sdk import Param, dag
from veen_airflow import tasks as audited
from veen_airflow.commands import INTEGRITY, checkpoint_create
from veen_airflow.operators import JudgeOperator, SparkOperator, VeenOperator
from veen_airflow.results import push_argv
from veen_airflow.zone import dag_defaults, zone

ZONE = zone()
FAULTS = "An audit has found faults"
HASHES = "Skip the two signatures of each entry: faster, but proves less"
PARAMS = {"hashes_only": Param(False, type="boolean", description=HASHES)}


@dag(schedule=ZONE.dags.audit, params=PARAMS, **dag_defaults(ZONE, "recorder", __doc__))
def veen_audit() -> None:
    push = VeenOperator(task_id="push", argv=push_argv, runbook="The archive is behind, or refuses")
    terms = VeenOperator(task_id="terms", argv=audited.terms_argv, runbook=FAULTS)
    audit = SparkOperator(
        task_id="audit", job="verify_log", arguments=audited.audit_arguments, runbook=FAULTS,
        accept=(INTEGRITY,),
    )  # fmt: skip
    record = VeenOperator(
        task_id="record", argv=audited.report_argv, artefacts=audited.recorded,
        runbook="A report is not recorded", trigger_rule="all_done",
    )  # fmt: skip
    checkpoint = VeenOperator(
        task_id="checkpoint", argv=checkpoint_create(ZONE), runbook="A checkpoint, now",
        artefacts=audited.checkpointed,
    )  # fmt: skip
    anchor = VeenOperator(task_id="anchor", argv=audited.anchored_argv, runbook="An anchor is late")
    judge = JudgeOperator(
        task_id="judge", judge=audited.judged, runbook=FAULTS, trigger_rule="all_done"
    )
    push >> terms >> audit >> record >> checkpoint >> anchor >> judge


veen_audit()
