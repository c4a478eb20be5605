"""Third part: a query in Z1 with full evidence, run again in Z2 over what crossed alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from cli.demo.stage import PATIENCE_SEC, Stage
from cli.demo.workload import SUSPECT
from cli.failure import INTEGRITY, OK, UNPROVEN
from cli.zone_people import ACCESS, HTTP
from recorder import settings as recorder_settings

_OUTCOMES: Final = (OK, INTEGRITY, UNPROVEN)


class _Answer(NamedTuple):
    result_id: str
    rows: int


def query(stage: Stage) -> None:
    answer = _ask(stage)
    _judge_run(stage, answer)
    package = stage.folder / "query-proof.json"
    stage.words.veen("query", "proof", answer.result_id, *_api(stage), "--out", package)
    _judge_package(stage, package, answer.rows)
    _replay(stage, package, answer.rows)


def _api(stage: Stage) -> tuple[str | Path, ...]:
    home = stage.online.home
    listen = recorder_settings.load(home.file).query.listen
    return "--api", f"http://{listen}", "--token-file", home.token


def _ask(stage: Stage) -> _Answer:
    """The service finds too many rows for its index, and has Airflow run the query."""
    stage.tell(f"an auditor of Z1 asks what {SUSPECT} did, with full evidence; Spark answers")
    stage.online.operator.unpause("veen_query")
    where = ("--stream", HTTP, "--stream", ACCESS, "--subject", SUSPECT)
    words = ("query", "submit", *_api(stage), *where, "--evidence", "full")
    digest = stage.words.veen(*words, "--reason", "incident 12", patience_sec=PATIENCE_SEC).document
    return _Answer(str(digest["result_id"]), int(digest["row_count"]))


def _judge_run(stage: Stage, answer: _Answer) -> None:
    """A result that Airflow made has the name of its run."""
    side = stage.online
    run = stage.succeeded(side, side.operator.run("veen_query", answer.result_id))
    stage.tell(f"  {side.operator.link(run)}")
    left = [one.state for one in side.made("query") if one.run_id == run.run_id]
    stage.claims.judge(
        "Airflow had Spark answer the query",
        left == ["done"] and answer.rows > 0,
        told=f"{answer.rows} rows by {run.dag_id}, run {run.run_id}: {run.state}",
        link=side.log_of(run),
    )


def _judge_package(stage: Stage, package: Path, rows: int) -> None:
    online = stage.online
    recorder = online.home.identity("service").read_card().client_id
    believed = (
        *("--hub-id", online.zone.hub_id.hex(), "--recorder-id", recorder.hex()),
        *("--hub-identity", str(online.home.hub)),
    )
    ledger = ("--ledger", online.home.root / "anchors.ledger")
    words = ("query", "verify", package, *believed, *ledger)
    found = stage.words.veen(*words, accept=_OUTCOMES).document
    stage.claims.judge(
        "the query's result is proven offline, row by row",
        rows > 0 and found["outcome"] == "proven",
        told=f"{rows} rows; {found['outcome']}: {found['reason']}; {found['completeness']}",
        link=str(package),
    )
    _judge_forged(stage, package, believed)


def _judge_forged(stage: Stage, package: Path, believed: tuple[str, ...]) -> None:
    """The same package without its last row and without the records of query and result."""
    document = json.loads(package.read_bytes())
    del document["rows"]["whole"][-1:]
    forged = package.with_name("query-proof-forged.json")
    whole = document | {"request": None, "result": None}
    forged.write_text(json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    found = stage.words.veen("query", "verify", forged, *believed, accept=_OUTCOMES)
    stage.claims.judge(
        "a forged package is refused",
        found.code == INTEGRITY and found.document["outcome"] == "failed",
        told=f"one row dropped, records removed: {found.document['reason']}",
        link=str(forged),
    )


def _replay(stage: Stage, package: Path, rows: int) -> None:
    stage.tell("the evidence is carried to Z2, which runs the query again over what it imported")
    online, offline = stage.online, stage.offline
    here = offline.home.root / package.name
    shutil.copyfile(package, here)
    who = ("--client", offline.home.identity("auditor").root, "--principal", "auditor")
    recorded = (*who, "--cap", offline.home.capability("auditor"), "--record")
    of = ("--hub-id", online.zone.hub_id.hex(), "--index", _index(stage))
    again = ("query", "replay", here, *offline.config, *of, *recorded)
    found = stage.words.veen(*again, accept=(0, 3)).document
    stage.claims.judge(
        "the same query over Z2's imports gives the same digest",
        found.get("verdict") == "matches",
        told=f"{rows} rows; the verdict is event {found.get('record_event', {}).get('seq')} of "
        "record/query/replays in Z2",
        link=str(here),
    )


def _index(stage: Stage) -> Path:
    """An index of Z2 over what it imported, and nothing else."""
    side = stage.offline
    found = side.home.root / "imported-index"
    reader = ("--client", side.home.identity("reader").root, "--principal", "reader")
    streams = [word for one in (HTTP, ACCESS) for word in ("--stream", f"import/{one}")]
    taken = ("--trust", side.home.trust, "--index", found)
    stage.words.veen("recorder", "index", "imports", *side.config, *reader, *streams, *taken)
    return found
