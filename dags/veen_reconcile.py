"""### Tell of every exported event whether it is here
After each import, and once a day. The report is written with a picture and, where something is
missing, with a gap file to be carried back. Gaps, and what must never be, such as two histories,
are alarms: the report is kept, and the run fails. Small histories are reconciled here; with
`reconcile_on = "spark"` the facts are collected here and reconciled by a Spark job, which gives the
same report.

By hand: `veen bridge reconcile`.
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
