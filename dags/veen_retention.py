"""### Prune chunks by the retention policy, and prove that nothing else is gone
Runs once a week. If the policy releases no chunk, the hub is not stopped. Otherwise the archive is
pushed, the hub is stopped, the chunks are pruned, every remaining byte is verified, and the hub is
started again in any case; producers store their events meanwhile. Then a consistency proof shows
that the log still extends the last checkpoint.

Manually: `veen hub retention`, with the commands of the runbook around it.
"""

from airflow.sdk import dag
from veen_airflow.commands import archive_push, checkpoint_verify, hub_verify, retention
from veen_airflow.operators import VeenOperator
from veen_airflow.results import checkpoint_of
from veen_airflow.tasks import due_of, pruned_of, start_argv, stop_argv
from veen_airflow.zone import at_run, dag_defaults, zone

ZONE = zone()
PRUNE, RESTART = "Retention did not end", "Restart the hub"
ALREADY_RUNNING = 4


@dag(schedule=ZONE.dags.retention, **dag_defaults(ZONE, "hub", __doc__))
def veen_retention() -> None:
    plan = VeenOperator(task_id="plan", argv=retention(ZONE), artefacts=due_of, runbook=PRUNE)
    push = VeenOperator(task_id="push", argv=at_run(archive_push), runbook=PRUNE)
    stop = VeenOperator(task_id="stop", argv=stop_argv, runbook=RESTART).as_setup()  # type: ignore[no-untyped-call]
    prune = VeenOperator(
        task_id="prune", argv=[*retention(ZONE), "--prune"], artefacts=pruned_of, runbook=PRUNE
    )
    verify = VeenOperator(task_id="verify", argv=hub_verify(ZONE), runbook=PRUNE)
    start = VeenOperator(
        task_id="start", argv=start_argv, accept=(0, ALREADY_RUNNING), runbook=RESTART
    ).as_teardown(setups=stop)
    proof = VeenOperator(
        task_id="proof", argv=checkpoint_verify(ZONE), runbook=RESTART,
        artefacts=checkpoint_of("verified"),
    )  # fmt: skip
    plan >> push >> stop >> prune >> verify >> start
    [verify, start] >> proof


veen_retention()
