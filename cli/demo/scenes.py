"""The scenes of the demonstration, in order.

Events are recorded in Z1, where Airflow checkpoints, anchors, archives and audits them. They are
carried to Z2, approved by a person, and reconciled. A query in Z1 with full evidence is run again
in Z2. At last a medium is changed on its way, and is refused.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from cli.demo import workload
from cli.demo.workload import SUSPECT
from cli.demo.zones import RUN_TIMEOUT_SEC, DagRunRef, DemoStage, DemoZone, WaitingTask, await_that
from cli.errors import INTEGRITY, OK, UNPROVEN
from recorder import settings as recorder_settings
from veen.digest import h
from veen.errors import Refused
from zone.artefacts import Artefact
from zone.people import ACCESS, AUDITS, HOSTS, HTTP, PRODUCERS, TYPES

_OUTCOMES: Final = (OK, INTEGRITY, UNPROVEN)
_INDEX_TIMEOUT_SEC: Final = 120.0
_LOOK_SEC: Final = 0.5
_SEED = 20_261_116
_START_MS = 1_794_816_000_000
COUNTS = {"gateway": 2_400, "access": 400, "hosts": 200}


def export(stage: DemoStage, medium: Path, name: str) -> DagRunRef:
    side = stage.online
    side.operator.unpause("veen_export")
    conf = {"medium": str(medium), "medium_id": name}
    return stage.succeeded(side, side.operator.trigger("veen_export", conf))


def carry(stage: DemoStage) -> None:
    """Export, carry, approve, import and reconcile."""
    stage.report("Z1 exports to the medium, a directory here")
    run = export(stage, stage.stick, "STICK-1")
    _judge_export(stage, run)
    stage.report("somebody carries the medium to Z2 and mounts it there")
    stage.offline.operator.unpause("veen_reconcile")
    stage.offline.operator.watch("veen_import")
    shutil.copytree(stage.stick, stage.mounted, dirs_exist_ok=True)
    run = stage.offline.operator.await_answered(_approve(stage), "Approve", RUN_TIMEOUT_SEC)
    stage.succeeded(stage.offline, run)
    _judge_import(stage, run)
    _reconcile(stage)
    _prove(stage)


def _judge_export(stage: DemoStage, run: DagRunRef) -> None:
    argv = ("bridge", "verify", stage.stick, "--trust", stage.offline.home.trust)
    document = stage.commands.veen(*argv, accept=(0, 3)).document
    rows = document["carriers"]
    events = sum(row["to_seq"] - row["from_seq"] + 1 for row in rows if row["bundle_id"])
    stage.claims.judge(
        "every carrier on the medium is valid, by public keys alone",
        document["ok"] is True and len(rows) >= len(TYPES),
        detail=f"{len(rows)} carriers with {events} events, verified without any network",
        link=str(stage.stick),
    )
    stage.report(f"  {len(rows)} carriers with {events} events: {stage.online.operator.link(run)}")


def _approve(stage: DemoStage) -> DagRunRef:
    """Check that a viewer cannot approve and an operator can, and nothing is imported before."""
    side = stage.offline
    _forge(stage, side.operator.await_question("veen_import", RUN_TIMEOUT_SEC))
    side.operator.trigger("veen_import")
    question = side.operator.await_question("veen_import", RUN_TIMEOUT_SEC)
    run = question.run
    stage.report(f"  Z2 asks: {question.task_id} of {run.run_id} waits for a person")
    before = stage.heads(side, "import/")
    stage.claims.judge(
        "nothing goes in before a person says so",
        not any(before.values()),
        detail=f"{sum(before.values())} events in import/ while the question stood",
        link=side.log_of(run),
    )
    refused = side.viewer.answer(question, "Approve").status_code
    answered = side.operator.answer(question, "Approve").status_code
    stage.claims.judge(
        "a viewer cannot let it in, an operator can",
        refused == httpx.codes.FORBIDDEN and answered == httpx.codes.OK,
        detail=f"the viewer was answered {refused}, the operator {answered}",
        link=side.log_of(run),
    )
    stage.report("  the operator approves it, over Airflow's API")
    return run


def _forge(stage: DemoStage, question: WaitingTask) -> None:
    """Check that the query service cannot approve, and a state set by hand imports nothing."""
    side = stage.offline
    service = side.service.set_success(question).status_code
    forged = side.operator.set_success(question).status_code
    run = side.operator.await_end(question.run, RUN_TIMEOUT_SEC)
    inside = sum(stage.heads(side, "import/").values())
    stage.claims.judge(
        "an approval that nobody gave lets nothing in",
        service == httpx.codes.FORBIDDEN
        and forged == httpx.codes.OK
        and run.state == "failed"
        and not inside,
        detail=(
            f"the query service was answered {service}; a task set to success by hand ended its "
            f"run as {run.state}, with {inside} events in import/"
        ),
        link=side.log_of(run),
    )
    stage.report("  a forged approval is refused; the import is asked about again")


def _judge_import(stage: DemoStage, run: DagRunRef) -> None:
    there = stage.heads(stage.online, "record/")
    here = stage.heads(stage.offline, "import/")
    pairs = {item: (there.get(item), here.get(f"import/{item}")) for item in TYPES}
    stage.claims.judge(
        "Z2 holds each exported event once",
        all(left == right for left, right in pairs.values()),
        detail=", ".join(f"{pair}: {right} of {left}" for pair, (left, right) in pairs.items()),
        link=str(stage.offline.home.root / "import" / "receipts"),
    )
    stage.report(f"  imported: {stage.offline.operator.link(run)}")


def _reconcile(stage: DemoStage) -> None:
    """Await the reconciliation that the import triggers."""
    side: DemoZone = stage.offline
    run = stage.succeeded(side, side.operator.await_new("veen_reconcile", [], RUN_TIMEOUT_SEC))
    reports = side.made("reconcile")
    counts = dict(reports[0].summary) if reports else {}
    picture = Path(str(reports[0].path)).with_suffix(".svg") if reports else Path()
    missing = {
        count: n for count, n in counts.items() if n and count not in ("imported", "excluded")
    }
    stage.claims.judge(
        "reconciliation finds every exported event in Z2",
        bool(reports) and reports[0].state == "whole" and not missing and picture.is_file(),
        detail=f"{counts.get('imported')} imported, nothing missing, waiting or doubled",
        link=str(picture),
    )
    stage.report(f"  {side.operator.link(run)}")


def _prove(stage: DemoStage) -> None:
    """Check the invariants of AGB0, one by one."""
    online, offline = stage.online, stage.offline
    settings = ("--online", online.home.file, "--online-hub", online.home.file)
    argv = ("bridge", "prove", *offline.config, *settings, "--offline-hub", offline.home.file)
    document = stage.commands.veen(*argv, accept=(0, 3)).document
    proof = stage.folder / "bridge-claims.json"
    proof.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    for item in document["claims"]:
        stage.claims.judge(
            f"{item['claim']}: {item['says']}",
            item["verdict"] == "held",
            detail=str(
                item.get("counterexample") or item.get("not_covered") or "no counterexample"
            ),
            link=str(proof),
        )


class _Answer(NamedTuple):
    result_id: str
    rows: int


def query(stage: DemoStage) -> None:
    answer = _ask(stage)
    _judge_run(stage, answer)
    package = stage.folder / "query-proof.json"
    stage.commands.veen("query", "proof", answer.result_id, *_api(stage.online), "--out", package)
    _judge_package(stage, package, answer.rows)
    _replay(stage, package, answer.rows)
    _analyse(stage, stage.folder / "query-of-imports.json")


def _api(side: DemoZone) -> tuple[str | Path, ...]:
    home = side.home
    listen = recorder_settings.load(home.file).query.listen
    return "--api", f"http://{listen}", "--token-file", home.token


def _ask(stage: DemoStage) -> _Answer:
    """Submit a query with too many rows for the index, which Airflow runs on Spark."""
    stage.report(f"an auditor of Z1 asks what {SUSPECT} did, with full evidence; Spark answers")
    stage.online.operator.unpause("veen_query")
    where = ("--stream", HTTP, "--stream", ACCESS, "--subject", SUSPECT)
    argv = ("query", "submit", *_api(stage.online), *where, "--evidence", "full")
    digest = stage.commands.veen(
        *argv, "--reason", "incident 12", timeout_sec=RUN_TIMEOUT_SEC
    ).document
    return _Answer(str(digest["result_id"]), int(digest["row_count"]))


def _judge_run(stage: DemoStage, answer: _Answer) -> None:
    """Check that Airflow answered the query, in a run with the id of the result."""
    side = stage.online
    run = stage.succeeded(side, side.operator.run("veen_query", answer.result_id))
    stage.report(f"  {side.operator.link(run)}")
    left = [artefact.state for artefact in side.made("query") if artefact.run_id == run.run_id]
    stage.claims.judge(
        "Airflow had Spark answer the query",
        left == ["done"] and answer.rows > 0,
        detail=f"{answer.rows} rows by {run.dag_id}, run {run.run_id}: {run.state}",
        link=side.log_of(run),
    )


def _judge_package(stage: DemoStage, package: Path, rows: int) -> None:
    online = stage.online
    recorder = online.home.identity("service").read_card().client_id
    believed = (
        *("--hub-id", online.zone.hub_id.hex(), "--recorder-id", recorder.hex()),
        *("--hub-identity", str(online.home.hub)),
    )
    ledger = ("--ledger", online.home.root / "anchors.ledger")
    argv = ("query", "verify", package, *believed, *ledger)
    document = stage.commands.veen(*argv, accept=_OUTCOMES).document
    stage.claims.judge(
        "the query's result is proven offline, row by row",
        rows > 0 and document["outcome"] == "proven",
        detail=f"{rows} rows; {document['outcome']}: {document['reason']}; "
        f"{document['completeness']}",
        link=str(package),
    )
    _judge_forged(stage, package, believed)


def _judge_forged(stage: DemoStage, package: Path, believed: tuple[str, ...]) -> None:
    """Check forged packages: without the last row, and without the records of the query."""
    document = json.loads(package.read_bytes())
    del document["rows"]["whole"][-1:]
    forged = package.with_name("query-proof-forged.json")
    whole = document | {"request": None, "result": None}
    forged.write_text(json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    verified = stage.commands.veen("query", "verify", forged, *believed, accept=_OUTCOMES)
    stage.claims.judge(
        "a forged package is refused",
        verified.code == INTEGRITY and verified.document["outcome"] == "failed",
        detail=f"one row dropped, records removed: {verified.document['reason']}",
        link=str(forged),
    )


def _replay(stage: DemoStage, package: Path, rows: int) -> None:
    stage.report("the evidence is carried to Z2, which runs the query again over what it imported")
    online, offline = stage.online, stage.offline
    here = offline.home.root / package.name
    shutil.copyfile(package, here)
    who = ("--client", offline.home.identity("auditor").root, "--principal", "auditor")
    recorded = (*who, "--cap", offline.home.capability("auditor"), "--record")
    _await_indexed(stage)
    of = ("--hub-id", online.zone.hub_id.hex())
    again = ("query", "replay", here, *offline.config, *of, *recorded)
    document = stage.commands.veen(*again, accept=(0, 3)).document
    stage.claims.judge(
        "the same query over Z2's imports gives the same digest",
        document.get("verdict") == "matches",
        detail=f"{rows} rows; the verdict is event "
        f"{document.get('record_event', {}).get('seq')} of "
        "record/query/replays in Z2",
        link=str(here),
    )


def _await_indexed(stage: DemoStage) -> None:
    """Wait until Z2's index has the imported events, which it follows by itself."""
    side = stage.offline
    heads, here = stage.heads(side, "import/"), side.zone.hub_id.hex()

    def is_indexed(value: Mapping[str, Any]) -> bool:
        rows = {
            item["stream"]: item["indexed"] for item in value["streams"] if item["hub_id"] == here
        }
        return all(rows.get(name, 0) >= head for name, head in heads.items())

    _await_status(stage, is_indexed)


def _await_status(stage: DemoStage, is_due: Callable[[Mapping[str, Any]], bool]) -> None:
    argv, until = ("recorder", "index", "status", *stage.offline.config), _INDEX_TIMEOUT_SEC
    deadline = time.monotonic() + until
    while not is_due(document := stage.commands.veen(*argv).document):
        if time.monotonic() > deadline:
            raise Refused(f"the index of Z2 did not catch up within {until} s: {document}")
        time.sleep(_LOOK_SEC)


def _analyse(stage: DemoStage, package: Path) -> None:
    """Check a query of Z2 over an import stream and a local stream."""
    stage.report(f"Z2 asks its own query service what {SUSPECT} did, over what it imported")
    side, stream = stage.offline, f"import/{ACCESS}"
    checkpoint = stage.commands.veen("recorder", "checkpoint", "create", *side.config).document
    _await_status(stage, lambda item: item["checkpoint"] == checkpoint["checkpoint_id"])
    where = ("--stream", stream, "--stream", HOSTS, "--subject", SUSPECT)
    digest = stage.commands.veen("query", "submit", *_api(side), *where).document
    stage.commands.veen("query", "proof", digest["result_id"], *_api(side), "--out", package)
    recorder = side.home.identity("service").read_card().client_id
    believed = (
        *("--hub-id", side.zone.hub_id.hex(), "--recorder-id", recorder.hex()),
        *("--hub-identity", str(side.home.hub)),
    )
    document = stage.commands.veen("query", "verify", package, *believed, accept=_OUTCOMES).document
    rows = json.loads(package.read_bytes())["rows"]["whole"]
    origins = {(row["source_hub_id"], row["source_stream"]) for row in rows}
    stage.claims.judge(
        "Z2 answers a query over its imports",
        document["outcome"] == "proven" and origins == {(stage.online.zone.hub_id.hex(), ACCESS)},
        detail=f"{len(rows)} rows of {stream} with their place in Z1; {document['outcome']}: "
        f"{document['reason']}",
        link=str(package),
    )


def record(stage: DemoStage, counts: dict[str, int], seed: int = _SEED) -> dict[str, int]:
    """Record the events of every producer; return the number in each stream."""
    side, made = stage.online, workload.events(seed, _START_MS, counts)
    acknowledged = {}
    for name, path in workload.write(stage.folder / f"workload-{seed}", made):
        who = ("--client", side.home.identity(name).root, "--cap", side.home.capability(name))
        argv = ("recorder", "emit", *side.config, *who, "--file", path)
        document = stage.commands.veen(*argv).document
        acknowledged[PRODUCERS[name]] = int(document["acknowledged"])
        stage.report(f"  {name} recorded {document['acknowledged']} events in {PRODUCERS[name]}")
    return acknowledged


def record_and_secure(stage: DemoStage) -> None:
    stage.report("Z1 records what happens in a small company")
    acknowledged = record(stage, COUNTS)
    expected = {PRODUCERS[name]: count for name, count in COUNTS.items()}
    _secure(stage)
    heads = stage.heads(stage.online, "record/")
    stage.claims.judge(
        "every event has its receipt and its place",
        acknowledged == expected
        and all(heads.get(item) == count for item, count in expected.items()),
        detail=f"{sum(acknowledged.values())} of {sum(expected.values())} recorded; "
        "heads of the hub agree",
        link=str(stage.online.home.hub / "log"),
    )
    _judge_checkpoint(stage)
    _judge_archive(stage)


def _secure(stage: DemoStage) -> None:
    """Unpause the DAGs, which then run by schedule and by assets."""
    side = stage.online
    stage.report("Airflow of Z1 makes a checkpoint; archive and anchor follow it")
    side.operator.unpause("veen_archive")
    side.operator.unpause("veen_checkpoint")
    _first(stage, side, "veen_checkpoint")
    side.operator.unpause("veen_anchor")
    _first(stage, side, "veen_archive")
    _first(stage, side, "veen_anchor")


def _first(stage: DemoStage, side: DemoZone, dag_id: str) -> None:
    stage.succeeded(side, side.operator.await_new(dag_id, [], RUN_TIMEOUT_SEC))


def _judge_checkpoint(stage: DemoStage) -> None:
    side = stage.online
    verified = [item for item in side.made("checkpoint") if item.state == "verified"]
    document = stage.commands.veen("recorder", "checkpoint", "verify", *side.admin).document
    stage.claims.judge(
        "a checkpoint that the hub signed holds",
        bool(verified) and len(document["held_by_hub"]) > 0,
        detail=f"verified by Airflow and again here, over {len(document['held_by_hub'])} streams",
        link=str(side.home.root / "checkpoints" / "checkpoints"),
    )
    anchors = [item for item in side.made("anchor") if item.state == "verified"]
    name = str(anchors[0].summary["checkpoint_id"]) if anchors else "none"
    files = sorted((side.home.root / "checkpoints" / "checkpoints").glob(f"*-{name}.cbor"))
    proven = (
        stage.commands.veen("anchor", "verify", "--checkpoint", files[0], *side.config).document
        if files
        else {"proven": []}
    )
    stage.claims.judge(
        "its root is anchored outside of the hub",
        bool(proven["proven"]),
        detail=f"{len(proven['proven'])} anchors proven offline, by the ledger alone",
        link=str(side.home.root / "anchors.ledger"),
    )


def _judge_archive(stage: DemoStage) -> None:
    side = stage.online
    storage = side.zone.storage
    where = storage.arguments() if storage else ()
    argv = ("archive", "verify", *where, "--hub-id", side.zone.hub_id.hex(), "--read-all")
    document = stage.commands.veen(*argv, "--hub-identity", side.home.hub).document
    made = [item for item in side.made("archive") if item.state == "verified"]
    stage.claims.judge(
        "the archive is complete, byte for byte",
        bool(made) and document["ok"] is True,
        detail=f"{document['entries']} entries in {document['labels']} labels, all read",
        link=storage.url if storage else "",
    )


def begin_audit(stage: DemoStage) -> DagRunRef:
    """Start the audit, which runs in the background."""
    stage.report("Spark begins to audit the archived log of Z1")
    stage.online.operator.unpause("veen_audit")
    return stage.online.operator.trigger("veen_audit")


def judge_audit(stage: DemoStage, begun: DagRunRef) -> None:
    stage.report("the audit of Z1: its report is recorded as an event, and anchored")
    side = stage.online
    run = stage.succeeded(side, begun)
    made = side.made("audit")
    report = json.loads(Path(str(made[0].path)).read_bytes())["report"] if made else {}
    recorded = stage.heads(side, AUDITS).get(AUDITS, 0)
    stage.claims.judge(
        "Spark found no fault in any byte of the log",
        bool(made) and report["ok"] is True and report["faults"] == [] and recorded == 1,
        detail=f"{report.get('entries')} entries audited; "
        f"the report is event {recorded} of {AUDITS}",
        link=str(made[0].path) if made else side.log_of(run),
    )


def tamper(stage: DemoStage) -> None:
    stage.report("more events are exported; on the way somebody turns one bit, and hides it well")
    record(stage, {"gateway": 120}, seed=7)
    stage.heads(stage.online, HTTP)
    medium = stage.folder / "stick-2"
    medium.mkdir()
    export(stage, medium, "STICK-2")
    carrier = _carrier_of(stage, medium, HTTP)
    changed = turn_one_bit(carrier)
    side = stage.offline
    before, known = stage.heads(side, "import/"), {item.name for item in _refused(side)}
    shutil.rmtree(stage.mounted)
    shutil.copytree(carrier, stage.mounted / "agb0" / carrier.name)
    refused: Artefact = await_that(
        lambda: next((item for item in _refused(side) if item.name not in known), None),
        "a refusal of what was changed",
        RUN_TIMEOUT_SEC,
    )
    run = side.operator.await_end(
        side.operator.run(refused.dag_id, refused.run_id), RUN_TIMEOUT_SEC
    )
    tasks = side.operator.tasks(run)
    stage.report(f"  Z2: Airflow ran veen_import: {run.state}; nobody was even asked")
    after, reason = stage.heads(side, "import/"), _reason(side, refused)
    stage.claims.judge(
        "a carrier with one bit turned is refused, and nothing of it goes in",
        run.state == "failed"
        and tasks.get("judge") == "failed"
        and tasks.get("approve_1") == "skipped"
        and before == after,
        detail=f"{changed}; {reason}",
        link=side.log_of(run),
    )


def _refused(side: DemoZone) -> list[Artefact]:
    return [item for item in side.made("import") if item.state in ("refused", "quarantined")]


def _reason(side: DemoZone, refused: Artefact) -> str:
    """The reason in the newest artefact of the carrier."""
    artefact = next((item for item in side.made("import") if item.name == refused.name), refused)
    detail = artefact.summary.get("reason") or artefact.summary.get("detail")
    return str(detail or "no reason is given").splitlines()[0][:100]


def _carrier_of(stage: DemoStage, medium: Path, stream: str) -> Path:
    argv = ("bridge", "verify", medium, "--trust", stage.offline.home.trust)
    for item in stage.commands.veen(*argv).document["carriers"]:
        if item["stream"] == stream:
            return Path(item["bags"][0])
    raise Refused(f"no carrier of {stream} is on {medium}")


def turn_one_bit(carrier: Path) -> str:
    """Change a byte of a volume, and both manifests to match, as a forger would."""
    volume = max((carrier / "data").rglob("*"), key=lambda item: item.stat().st_size)
    raw = bytearray(volume.read_bytes())
    at = len(raw) // 2
    raw[at] ^= 0x01
    _replace(carrier, volume, bytes(raw))
    return f"bit 0 of byte {at} of {volume.name} was turned"


def _replace(carrier: Path, file: Path, raw: bytes) -> None:
    """Replace the bytes of a file, and its hash in a manifest."""
    true, false = h(file.read_bytes()).hex(), h(raw).hex()
    file.chmod(0o600)
    file.write_bytes(raw)
    telling = [path for path in sorted(carrier.glob("*manifest-*.txt")) if true in path.read_text()]
    if not telling and file.parent != carrier:
        raise Refused(f"no manifest of {carrier} lists {file.name}")
    for item in telling:
        _replace(carrier, item, item.read_text().replace(true, false).encode())
