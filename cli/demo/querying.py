"""Third part: a query in Z1 with full evidence, run again in Z2 over what crossed alone."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from cli.demo.stage import PATIENCE_SEC, Side, Stage
from cli.demo.workload import SUSPECT
from cli.failure import INTEGRITY, OK, UNPROVEN, Refused
from cli.zone_people import ACCESS, HOSTS, HTTP
from recorder import settings as recorder_settings

_OUTCOMES: Final = (OK, INTEGRITY, UNPROVEN)
_PATIENCE_SEC: Final = 120.0
_LOOK_SEC: Final = 0.5


class _Answer(NamedTuple):
    result_id: str
    rows: int


def query(stage: Stage) -> None:
    answer = _ask(stage)
    _judge_run(stage, answer)
    package = stage.folder / "query-proof.json"
    stage.words.veen("query", "proof", answer.result_id, *_api(stage.online), "--out", package)
    _judge_package(stage, package, answer.rows)
    _replay(stage, package, answer.rows)
    _analyse(stage, stage.folder / "query-of-imports.json")


def _api(side: Side) -> tuple[str | Path, ...]:
    home = side.home
    listen = recorder_settings.load(home.file).query.listen
    return "--api", f"http://{listen}", "--token-file", home.token


def _ask(stage: Stage) -> _Answer:
    """The service finds too many rows for its index, and has Airflow run the query."""
    stage.tell(f"an auditor of Z1 asks what {SUSPECT} did, with full evidence; Spark answers")
    stage.online.operator.unpause("veen_query")
    where = ("--stream", HTTP, "--stream", ACCESS, "--subject", SUSPECT)
    words = ("query", "submit", *_api(stage.online), *where, "--evidence", "full")
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
    _await_indexed(stage)
    of = ("--hub-id", online.zone.hub_id.hex())
    again = ("query", "replay", here, *offline.config, *of, *recorded)
    found = stage.words.veen(*again, accept=(0, 3)).document
    stage.claims.judge(
        "the same query over Z2's imports gives the same digest",
        found.get("verdict") == "matches",
        told=f"{rows} rows; the verdict is event {found.get('record_event', {}).get('seq')} of "
        "record/query/replays in Z2",
        link=str(here),
    )


def _await_indexed(stage: Stage) -> None:
    """Z2's own index takes up what was imported, without being told to."""
    side = stage.offline
    heads, here = stage.heads(side, "import/"), side.zone.hub_id.hex()

    def is_indexed(found: Mapping[str, Any]) -> bool:
        rows = {one["stream"]: one["indexed"] for one in found["streams"] if one["hub_id"] == here}
        return all(rows.get(name, 0) >= head for name, head in heads.items())

    _await_status(stage, is_indexed)


def _await_status(stage: Stage, is_due: Callable[[Mapping[str, Any]], bool]) -> None:
    words, until = ("recorder", "index", "status", *stage.offline.config), _PATIENCE_SEC
    deadline = time.monotonic() + until
    while not is_due(found := stage.words.veen(*words).document):
        if time.monotonic() > deadline:
            raise Refused(f"the index of Z2 is not where it should be after {until} s: {found}")
        time.sleep(_LOOK_SEC)


def _analyse(stage: Stage, package: Path) -> None:
    """A query of Z2's own, over an import stream beside a local one."""
    stage.tell(f"Z2 asks its own query service what {SUSPECT} did, over what it imported")
    side, stream = stage.offline, f"import/{ACCESS}"
    made = stage.words.veen("recorder", "checkpoint", "create", *side.config).document
    _await_status(stage, lambda found: found["checkpoint"] == made["checkpoint_id"])
    where = ("--stream", stream, "--stream", HOSTS, "--subject", SUSPECT)
    digest = stage.words.veen("query", "submit", *_api(side), *where).document
    stage.words.veen("query", "proof", digest["result_id"], *_api(side), "--out", package)
    recorder = side.home.identity("service").read_card().client_id
    believed = (
        *("--hub-id", side.zone.hub_id.hex(), "--recorder-id", recorder.hex()),
        *("--hub-identity", str(side.home.hub)),
    )
    found = stage.words.veen("query", "verify", package, *believed, accept=_OUTCOMES).document
    rows = json.loads(package.read_bytes())["rows"]["whole"]
    origins = {(one["source_hub_id"], one["source_stream"]) for one in rows}
    stage.claims.judge(
        "Z2 answers a query over its imports",
        found["outcome"] == "proven" and origins == {(stage.online.zone.hub_id.hex(), ACCESS)},
        told=f"{len(rows)} rows of {stream} with their place in Z1; {found['outcome']}: "
        f"{found['reason']}",
        link=str(package),
    )
