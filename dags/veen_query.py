"""### Run a query on Spark that is too large for the index
Started by the query service with the result_id as run_id, so a repeated request starts one run. The
archive is pushed up to the checkpoint of the query, then the job reads, verifies and hashes on
Spark. The service waits for this run, hashes the rows again and records the digest. If the run
fails, the query is FAILED.

Manually: `veen query submit`.
"""

from airflow.sdk import Param, dag
from veen_airflow.commands import archive_push
from veen_airflow.operators import SparkOperator, VeenOperator
from veen_airflow.tasks import queried, query_arguments
from veen_airflow.zone import at_run, dag_defaults, zone

ZONE = zone()
RESULT = "result_id of a query that the service has accepted"
PARAMS = {"result_id": Param(type="string", pattern="^r-[0-9a-f]{32}$", description=RESULT)}


@dag(schedule=None, params=PARAMS, **dag_defaults(ZONE, "query", __doc__, max_active_runs=4))
def veen_query() -> None:
    push = VeenOperator(
        task_id="push", argv=at_run(archive_push), runbook="The archive is behind, or refuses"
    )
    answer = SparkOperator(
        task_id="answer",
        job="query_digest",
        arguments=query_arguments,
        artefact=queried,
        runbook="A query has failed on Spark",
    )
    push >> answer


veen_query()
