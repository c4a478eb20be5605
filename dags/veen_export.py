"""### Export new events to the medium
Runs on its schedule, and on demand with ranges or with the gap file of the other zone. An export
ends at the last checkpoint; each carrier is read back, signed, and recorded in the audit log of
this zone. Then all carriers on the medium are verified. An interrupted export is finished by the
next run, byte for byte. The command itself allows one export at a time.

Manually: `veen bridge export`.
"""

from airflow.sdk import Param, dag
from veen_airflow.operators import VeenOperator
from veen_airflow.results import carriers_of
from veen_airflow.tasks import check_argv, export_argv
from veen_airflow.zone import dag_defaults, zone

ZONE = zone()
NOTHING_TO_DO = 6
TEXT = ["string", "null"]
RANGE = {"type": "string", "pattern": r"^.+=[0-9]+\.\.[0-9]+$"}
PARAMS = {
    "medium": Param(str(ZONE.dags.medium), type="string", description="Mount point of the medium"),
    "medium_id": Param(None, type=TEXT, description="Label of the medium, such as USB-17"),
    "ranges": Param([], type="array", items=RANGE, description="Export again: stream=FROM..TO"),
    "gap_file": Param(None, type=TEXT, description="Export the gaps in this file again"),
    "heartbeat": Param(False, type="boolean", description="Export only the checkpoint, no events"),
}


@dag(schedule=ZONE.dags.export, params=PARAMS, **dag_defaults(ZONE, "bridge", __doc__))
def veen_export() -> None:
    export = VeenOperator(
        task_id="export",
        argv=export_argv,
        nothing_codes=(NOTHING_TO_DO,),
        runbook="An export does not end",
    )
    check = VeenOperator(
        task_id="check",
        argv=check_argv,
        artefacts=carriers_of,
        runbook="A carrier is refused",
    )
    export >> check


if ZONE.exports:
    veen_export()
