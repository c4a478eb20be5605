"""Second part: what Z1 recorded is carried to Z2, let in by a person, and reconciled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx

from cli.demo.airflow_api import Question, Run
from cli.demo.stage import PATIENCE_SEC, Side, Stage
from cli.zone_people import TYPES


def export(stage: Stage, medium: Path, name: str) -> Run:
    side = stage.online
    side.operator.unpause("veen_export")
    conf = {"medium": str(medium), "medium_id": name}
    return stage.succeeded(side, side.operator.trigger("veen_export", conf))


def carry(stage: Stage) -> None:
    """Export, carry, be let in by a person, reconcile."""
    stage.tell("Z1 exports to the medium, a directory here")
    run = export(stage, stage.stick, "STICK-1")
    _judge_export(stage, run)
    stage.tell("somebody carries the medium to Z2 and mounts it there")
    stage.offline.operator.unpause("veen_reconcile")
    stage.offline.operator.watch("veen_import")
    shutil.copytree(stage.stick, stage.mounted, dirs_exist_ok=True)
    run = stage.offline.operator.await_answered(_approve(stage), "Approve", PATIENCE_SEC)
    stage.succeeded(stage.offline, run)
    _judge_import(stage, run)
    _reconcile(stage)
    _prove(stage)


def _judge_export(stage: Stage, run: Run) -> None:
    words = ("bridge", "verify", stage.stick, "--trust", stage.offline.home.trust)
    found = stage.words.veen(*words, accept=(0, 3)).document
    rows = found["carriers"]
    events = sum(one["to_seq"] - one["from_seq"] + 1 for one in rows if one["bundle_id"])
    stage.claims.judge(
        "every carrier on the medium is valid, by public keys alone",
        found["ok"] is True and len(rows) >= len(TYPES),
        told=f"{len(rows)} carriers with {events} events, verified without any network",
        link=str(stage.stick),
    )
    stage.tell(f"  {len(rows)} carriers with {events} events: {stage.online.operator.link(run)}")


def _approve(stage: Stage) -> Run:
    """A viewer is refused, an operator is not; until then nothing has gone in."""
    side = stage.offline
    _forge(stage, side.operator.await_question("veen_import", PATIENCE_SEC))
    side.operator.trigger("veen_import")
    question = side.operator.await_question("veen_import", PATIENCE_SEC)
    run = question.run
    stage.tell(f"  Z2 asks: {question.task_id} of {run.run_id} waits for a person")
    before = stage.heads(side, "import/")
    stage.claims.judge(
        "nothing goes in before a person says so",
        not any(before.values()),
        told=f"{sum(before.values())} events in import/ while the question stood",
        link=side.log_of(run),
    )
    refused = side.viewer.answer(question, "Approve").status_code
    answered = side.operator.answer(question, "Approve").status_code
    stage.claims.judge(
        "a viewer cannot let it in, an operator can",
        refused == httpx.codes.FORBIDDEN and answered == httpx.codes.OK,
        told=f"the viewer was answered {refused}, the operator {answered}",
        link=side.log_of(run),
    )
    stage.tell("  the operator approves it, over Airflow's API")
    return run


def _forge(stage: Stage, question: Question) -> None:
    """The query service may not touch the import; a state set by hand lets nothing in."""
    side = stage.offline
    service = side.service.set_success(question).status_code
    forged = side.operator.set_success(question).status_code
    run = side.operator.await_end(question.run, PATIENCE_SEC)
    inside = sum(stage.heads(side, "import/").values())
    stage.claims.judge(
        "an approval that nobody gave lets nothing in",
        service == httpx.codes.FORBIDDEN
        and forged == httpx.codes.OK
        and run.state == "failed"
        and not inside,
        told=(
            f"the query service was answered {service}; a task set to success by hand ended its "
            f"run as {run.state}, with {inside} events in import/"
        ),
        link=side.log_of(run),
    )
    stage.tell("  a forged approval is refused; the import is asked about again")


def _judge_import(stage: Stage, run: Run) -> None:
    there = stage.heads(stage.online, "record/")
    here = stage.heads(stage.offline, "import/")
    pairs = {one: (there.get(one), here.get(f"import/{one}")) for one in TYPES}
    stage.claims.judge(
        "Z2 holds each exported event once",
        all(left == right for left, right in pairs.values()),
        told=", ".join(f"{one}: {right} of {left}" for one, (left, right) in pairs.items()),
        link=str(stage.offline.home.root / "import" / "receipts"),
    )
    stage.tell(f"  imported: {stage.offline.operator.link(run)}")


def _reconcile(stage: Stage) -> None:
    """The import itself has Airflow reconcile."""
    side: Side = stage.offline
    run = stage.succeeded(side, side.operator.await_new("veen_reconcile", [], PATIENCE_SEC))
    made = side.made("reconcile")
    counts = dict(made[0].summary) if made else {}
    picture = Path(str(made[0].path)).with_suffix(".svg") if made else Path()
    missing = {one: n for one, n in counts.items() if n and one not in ("imported", "excluded")}
    stage.claims.judge(
        "reconciliation finds every exported event in Z2",
        bool(made) and made[0].state == "whole" and not missing and picture.is_file(),
        told=f"{counts.get('imported')} imported, nothing missing, waiting or doubled",
        link=str(picture),
    )
    stage.tell(f"  {side.operator.link(run)}")


def _prove(stage: Stage) -> None:
    """AGB0's invariants, each by itself."""
    online, offline = stage.online, stage.offline
    settings = ("--online", online.home.file, "--online-hub", online.home.file)
    words = ("bridge", "prove", *offline.config, *settings, "--offline-hub", offline.home.file)
    found = stage.words.veen(*words, accept=(0, 3)).document
    proof = stage.folder / "bridge-claims.json"
    proof.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    for one in found["claims"]:
        stage.claims.judge(
            f"{one['claim']}: {one['says']}",
            one["verdict"] == "holds",
            told=str(one.get("counterexample") or one.get("untold") or "no counterexample"),
            link=str(proof),
        )
