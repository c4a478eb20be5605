"""### Import carriers from the medium, after approval
Runs when a carrier appears on the medium or in the inbox, and on demand. `[dags.approval]` sets how
many people must approve, in addition to the signatures of `[[bridge.approvals]]`; there is no
default answer and no timeout. Only bundles that were shown and approved in Airflow are imported.

Manually: `veen bridge verify`, `veen bridge import --only`, `veen bridge receipt`.
"""

from airflow.sdk import Asset, AssetWatcher, Param, chain, dag
from veen_airflow import imports as imported
from veen_airflow.approval_operators import MediumSensor, people
from veen_airflow.operators import JudgeOperator, VeenOperator
from veen_airflow.results import checkpoint_of
from veen_airflow.zone import IMPORT, MEDIUM, dag_defaults, zone
from veen_watch import MediumTrigger

ZONE = zone()
CAME = AssetWatcher(name="veen_medium", trigger=MediumTrigger(str(ZONE.file)))
# One object for both of its places: the last one that Airflow sees decides who watches it.
CARRIER = Asset(MEDIUM, watchers=[CAME])
WHERE = "Mount point of the medium; the inbox is always searched"
PARAMS = {"medium": Param(str(ZONE.dags.medium), type="string", description=WHERE)}
REFUSED, PARTIAL, ENDS = "A carrier is refused", "An import does not end", (0, 6, 7, 8, 9, 12)


@dag(schedule=[CARRIER], params=PARAMS, **dag_defaults(ZONE, "bridge", __doc__))
def veen_import() -> None:
    carriers = MediumSensor(task_id="carriers", poll_sec=ZONE.dags.poll_sec)
    verify = VeenOperator(task_id="verify", argv=imported.verify_argv, runbook=REFUSED,
                          artefacts=imported.verified_artefacts, accept=(0, 3))  # fmt: skip
    let_in = VeenOperator(
        task_id="import", argv=imported.import_argv, artefacts=imported.let_in, accept=ENDS,
        runbook=PARTIAL, trigger_rule="none_failed",
    )  # fmt: skip
    checkpoint = VeenOperator(
        task_id="checkpoint", argv=imported.checkpoint_argv, outlets=[Asset(IMPORT)],
        artefacts=checkpoint_of("signed", is_last=True), runbook="A checkpoint, now",
    )  # fmt: skip
    receipt = VeenOperator(task_id="receipt", argv=imported.receipt_argv, runbook=PARTIAL,
                           artefacts=imported.log_receipt)  # fmt: skip
    judge = JudgeOperator(task_id="judge", judge=imported.judged, runbook=REFUSED)
    rest = JudgeOperator(task_id="rest", judge=imported.remaining, runbook=PARTIAL,
                         outlets=[CARRIER])  # fmt: skip
    chain(carriers, verify, *people(ZONE.dags.approval), let_in, [checkpoint, judge, rest])
    checkpoint >> receipt


if ZONE.imports:
    veen_import()
