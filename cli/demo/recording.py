"""First part: events are recorded in Z1; Airflow checkpoints, anchors, archives and audits."""

from __future__ import annotations

import json
from pathlib import Path

from cli.demo import workload
from cli.demo.airflow_api import Run
from cli.demo.stage import PATIENCE_SEC, Side, Stage
from cli.zone_people import AUDITS, PRODUCERS

_SEED = 20_261_116
_START_MS = 1_794_816_000_000
COUNTS = {"gateway": 2_400, "access": 400, "hosts": 200}


def record(stage: Stage, counts: dict[str, int], seed: int = _SEED) -> dict[str, int]:
    """Have every producer record its events; how many each stream got."""
    side, made = stage.online, workload.events(seed, _START_MS, counts)
    landed = {}
    for name, path in workload.write(stage.folder / f"workload-{seed}", made):
        who = ("--client", side.home.identity(name).root, "--cap", side.home.capability(name))
        words = ("recorder", "emit", *side.config, *who, "--file", path)
        found = stage.words.veen(*words).document
        landed[PRODUCERS[name]] = int(found["landed"])
        stage.tell(f"  {name} recorded {found['landed']} events in {PRODUCERS[name]}")
    return landed


def record_and_secure(stage: Stage) -> None:
    stage.tell("Z1 records what happens in a small company")
    landed = record(stage, COUNTS)
    expected = {PRODUCERS[name]: count for name, count in COUNTS.items()}
    _secure(stage)
    heads = stage.heads(stage.online, "record/")
    stage.claims.judge(
        "every event has its receipt and its place",
        landed == expected and all(heads.get(one) == count for one, count in expected.items()),
        told=f"{sum(landed.values())} of {sum(expected.values())} landed; heads of the hub agree",
        link=str(stage.online.home.hub / "log"),
    )
    _judge_checkpoint(stage)
    _judge_archive(stage)


def _secure(stage: Stage) -> None:
    """Unpaused, the DAGs run by themselves: the first by its schedule, the others by assets."""
    side = stage.online
    stage.tell("Airflow of Z1 makes a checkpoint; archive and anchor follow it")
    side.operator.unpause("veen_archive")
    side.operator.unpause("veen_checkpoint")
    _first(stage, side, "veen_checkpoint")
    side.operator.unpause("veen_anchor")
    _first(stage, side, "veen_archive")
    _first(stage, side, "veen_anchor")


def _first(stage: Stage, side: Side, dag_id: str) -> None:
    stage.succeeded(side, side.operator.await_new(dag_id, [], PATIENCE_SEC))


def _judge_checkpoint(stage: Stage) -> None:
    side = stage.online
    made = [one for one in side.made("checkpoint") if one.state == "verified"]
    found = stage.words.veen("recorder", "checkpoint", "verify", *side.admin).document
    stage.claims.judge(
        "a checkpoint that the hub signed holds",
        bool(made) and len(found["held_by_hub"]) > 0,
        told=f"verified by Airflow and again here, over {len(found['held_by_hub'])} streams",
        link=str(side.home.root / "checkpoints" / "checkpoints"),
    )
    anchors = [one for one in side.made("anchor") if one.state == "verified"]
    name = str(anchors[0].summary["checkpoint_id"]) if anchors else "none"
    files = sorted((side.home.root / "checkpoints" / "checkpoints").glob(f"*-{name}.cbor"))
    proven = (
        stage.words.veen("anchor", "verify", "--checkpoint", files[0], *side.config).document
        if files
        else {"proven": []}
    )
    stage.claims.judge(
        "its root is anchored outside of the hub",
        bool(proven["proven"]),
        told=f"{len(proven['proven'])} anchors proven offline, by the ledger alone",
        link=str(side.home.root / "anchors.ledger"),
    )


def _judge_archive(stage: Stage) -> None:
    side = stage.online
    storage = side.zone.storage
    where = storage.options() if storage else ()
    words = ("archive", "verify", *where, "--hub-id", side.zone.hub_id.hex(), "--read-all")
    found = stage.words.veen(*words, "--hub-identity", side.home.hub).document
    made = [one for one in side.made("archive") if one.state == "verified"]
    stage.claims.judge(
        "the archive is complete, byte for byte",
        bool(made) and found["ok"] is True,
        told=f"{found['entries']} entries in {found['labels']} labels, all read",
        link=storage.url if storage else "",
    )


def begin_audit(stage: Stage) -> Run:
    """It takes a while; the rest of the story goes on."""
    stage.tell("Spark begins to audit the archived log of Z1")
    stage.online.operator.unpause("veen_audit")
    return stage.online.operator.trigger("veen_audit")


def judge_audit(stage: Stage, begun: Run) -> None:
    stage.tell("the audit of Z1: its report is recorded as an event, and anchored")
    side = stage.online
    run = stage.succeeded(side, begun)
    made = side.made("audit")
    report = json.loads(Path(str(made[0].path)).read_bytes())["report"] if made else {}
    recorded = stage.heads(side, AUDITS).get(AUDITS, 0)
    stage.claims.judge(
        "Spark found no fault in any byte of the log",
        bool(made) and report["ok"] is True and report["faults"] == [] and recorded == 1,
        told=f"{report.get('entries')} entries audited; the report is event {recorded} of {AUDITS}",
        link=str(made[0].path) if made else side.log_of(run),
    )
