"""### Reconcile exported with imported events
Runs after each import and once a day. The report is written with a picture and, if events are
missing, with a gap file to carry back. Gaps and violations, such as an equivocation, raise an
alarm: the report is stored, and the run fails. Small histories are reconciled by the command; with
`reconcile_on = "spark"` a Spark job reconciles the collected facts and gives the same report.

Manually: `veen bridge reconcile`.
"""

from airflow.sdk import Asset, AssetOrTimeSchedule, CronTriggerTimetable, dag
from veen_airflow import tasks as bridge
from veen_airflow.operators import JudgeOperator, SparkOperator, VeenOperator
from veen_airflow.zone import IMPORT, dag_defaults, zone

ZONE = zone()
GAPS = "The bridge has gaps"
ALL_HERE, TO_DO, NEVER = 0, 13, 3
ON_IMPORT = [Asset(IMPORT)]
DAILY = ZONE.dags.reconcile
SCHEDULE = ON_IMPORT if DAILY is None else AssetOrTimeSchedule(
    timetable=CronTriggerTimetable(DAILY, timezone="UTC"), assets=ON_IMPORT
)  # fmt: skip


@dag(schedule=SCHEDULE, **dag_defaults(ZONE, "bridge", __doc__))
def veen_reconcile() -> None:
    if ZONE.dags.reconcile_on == "spark":
        facts = VeenOperator(task_id="facts", argv=bridge.facts_argv, runbook=GAPS)
        on_spark = SparkOperator(
            task_id="reconcile", job="reconcile", arguments=bridge.facts_arguments, runbook=GAPS,
            accept=(NEVER,),
        )  # fmt: skip
        judge = JudgeOperator(
            task_id="judge", judge=bridge.reconciled_on_spark, runbook=GAPS, trigger_rule="all_done"
        )
        facts >> on_spark >> judge
    else:
        VeenOperator(
            task_id="reconcile", argv=bridge.reconcile_argv, runbook=GAPS,
            artefacts=bridge.reconciled, accept=(ALL_HERE, TO_DO, NEVER),
        )  # fmt: skip


if ZONE.imports:
    veen_reconcile()
