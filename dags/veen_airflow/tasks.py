"""An audit: what its job is told, the report it leaves, and how that is recorded and anchored.

An export: the words of its commands, from what a run was asked for, and the medium it needs.

Folds: which streams are folded, who reads them, and the snapshots that were verified.

A query on Spark: what its job is told, and what is known of its end.

A reconciliation: how it is run, here or on Spark, and what its report means for people.

Retention: the hub stopped for it and started again, and what was let go.

A hub that ``veen zone up`` runs is asked to rest by a file, since the zone ends with its hub
otherwise: while ``hub.rest`` is there it rests, and ``hub.resting`` says that it does.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, Final

from veen_airflow.alerts import Alarm
from veen_airflow.artefacts import DagArtefact, DagRefusal, NothingToDo
from veen_airflow.commands import (
    Command,
    CommandAnswer,
    anchor_list,
    anchor_publish,
    audit_terms,
    bridge_export,
    bridge_reconcile,
    bridge_verify,
    data_dir,
    environment,
    hub_identity,
    hub_start,
    record_file,
    report_files,
    snapshot,
    storage,
    store,
)
from veen_airflow.results import checkpoint_of, read_run_file, write_run_file
from veen_airflow.zone import workplace, write_once, zone
from zone.config import ZoneConfig

Context = Mapping[str, Any]


def terms_words(context: Context) -> Sequence[str]:
    return audit_terms(zone(), workplace(zone(), context) / "terms.json")


def audit_arguments(context: Context) -> Sequence[str]:
    of, place = zone(), workplace(zone(), context)
    who = of.dags.acting
    result = [*store(of), *hub_identity(of), "--terms", str(place / "terms.json")]
    result += ["--report", str(place / "report.json")]
    if who.client is not None:
        result += ["--sign-with", str(who.client)]
    if who.client is not None and who.passphrase_file is not None:
        result += ["--passphrase-file", str(who.passphrase_file)]
    return [*result, "--hashes-only"] if context["params"].get("hashes_only") else result


def report_words(context: Context) -> Sequence[str]:
    """Record what an audit has found: one line in a file of its own, which is read once."""
    of = zone()
    file, digest, report = _audited(context)
    folder = of.folder / "reports" / "audit" / digest
    write_once(folder / "report.json", file.read_bytes())
    payload = {name: report[name] for name in ("ok", "entries", "chunks", "labels")}
    payload |= {"report": digest, "faults": len(report["faults"])}
    line = json.dumps({"payload": payload}, sort_keys=True) + "\n"
    write_once(folder / "event" / "event.jsonl", line.encode())
    return record_file(of, folder / "event" / "event.jsonl", context["dag"].dag_id)


def recorded(_answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    _file, digest, report = _audited(context)
    counts = {name: report[name] for name in ("ok", "entries", "chunks", "labels")}
    return [
        DagArtefact(
            kind="audit",
            id=digest,
            state="whole" if report["ok"] else "faults",
            path=str(zone().folder / "reports" / "audit" / digest / "report.json"),
            summary=counts | {"faults": len(report["faults"])},
        )
    ]


def checkpointed(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    """The checkpoint that covers the report; which one it is, the next task does not ask XCom."""
    made = checkpoint_of("signed", is_last=True)(answer, context)
    write_run_file(context, "checkpoint", made[0].id)
    return made


def anchored_words(context: Context) -> Sequence[str]:
    """Publish the checkpoint of the report, unless that was done before."""
    of = zone()
    made = read_run_file(context, "checkpoint")
    listed = Command(anchor_list(of), environment=environment()).answer("An anchor is late")
    if any(item["checkpoint_id"] == made for item in listed.document["anchors"]):
        return anchor_list(of)
    return [*anchor_publish(of), made]


def judged(context: Context) -> Sequence[DagArtefact]:
    """Faults fail the run, once the report of them is safe; so does an audit without a report."""
    if zone().storage is None:
        raise NothingToDo("this zone has no [storage]: there is no archive to audit")
    if not (workplace(zone(), context) / "report.json").exists():
        raise Alarm("no-report", "the audit has left no report; its own task tells why.")
    _file, digest, report = _audited(context)
    if not report["ok"]:
        first = report["faults"][0]
        raise Alarm(
            digest[:16],
            f"the audit found {len(report['faults'])} faults, the first in {first['file']} at byte "
            f"{first['offset']}: {first['what']}.",
        )
    return ()


def _audited(context: Context) -> tuple[Path, str, dict[str, Any]]:
    """The report of this run, and the digest of what it says, whoever signed it."""
    from veen.digest import h  # noqa: PLC0415
    from veen.wire.canonical_json import encode  # noqa: PLC0415 - only a task needs them

    file = workplace(zone(), context) / "report.json"
    if not file.exists():
        raise NothingToDo("the audit has left no report; its own task tells why")
    report = json.loads(file.read_bytes())["report"]
    return file, h(encode(report)).hex(), report


_SCHEDULED: Final = "scheduled"


def export_words(context: Context) -> Sequence[str]:
    """Without its medium a scheduled run has nothing to do, and one by hand is refused."""
    asked = dict(context["params"])
    if lack := _lack_of(Path(asked["medium"])):
        raise (NothingToDo if context["dag_run"].run_type == _SCHEDULED else DagRefusal)(lack)
    return bridge_export(zone(), asked, f"airflow:{context['run_id']}")


def check_words(context: Context) -> Sequence[str]:
    """Every byte as it was written; who signed it is for the other zone to tell."""
    transcript = workplace(zone(), context) / "transcript.txt"
    return bridge_verify([str(context["params"]["medium"])], ["--level", "intact"], transcript)


def _lack_of(medium: Path) -> str | None:
    """A folder is never made here: what stood in it would be on a disk that nobody carries."""
    if not medium.is_dir():
        return f"the medium is not there: {medium} is no directory; nothing was exported"
    if zone().dags.medium_is_mount and not medium.is_mount():
        return f"nothing is mounted at {medium}, and medium_is_mount is true; nothing was exported"
    return None


def snapshot_words(verb: str) -> Callable[[Context], Sequence[Sequence[str]]]:
    """Words for each stream that is folded; ``verb`` is create or verify."""

    def words(context: Context) -> Sequence[Sequence[str]]:
        of, place = zone(), workplace(zone(), context)
        reader, streams = reader_of(of), of.dags.fold.streams or recorder_streams(of)
        files = {stream: place / f"{stream.replace('/', '.')}.snapshot" for stream in streams}
        if verb == "verify":
            files = {item: file for item, file in files.items() if file.exists()}
        if not files:
            raise NothingToDo("no stream has events in the archive yet")
        return [snapshot(of, verb, item, reader, file) for item, file in files.items()]

    return words


def folded(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    """A snapshot that was verified, under a name that says what it is of."""
    of, result = zone(), answer.document
    stream = str(result["stream"]).replace("/", ".")
    name = f"{result['state_class']}-{stream}-{result['upto_stream_seq']}"
    path = of.folder / "reports" / "fold" / f"{name}.snapshot"
    write_once(path, (workplace(of, context) / f"{stream}.snapshot").read_bytes())
    hashes = {item: result[item] for item in ("state_hash", "mmr_root", "upto_stream_seq")}
    return [DagArtefact(kind="fold", id=name, state="verified", path=str(path), summary=hashes)]


def events_arguments(context: Context) -> Sequence[str]:
    """Only where the zone's file asks for plaintext at rest."""
    of = zone()
    if not of.dags.fold.plaintext_at_rest:
        raise NothingToDo(
            "the table of events is not written: [dags.fold] plaintext_at_rest is not true"
        )
    terms = ["--terms", str(workplace(of, context) / "terms.json")]
    return [*store(of), *reader_of(of), *terms, "--plaintext-at-rest", "yes"]


def reader_of(of: ZoneConfig) -> list[str]:
    """Whose keys open events: the zone's reader, else the recorder's own; they are only read."""
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    opener = load(of.file).hub.opener
    result = ["--client", str(opener.client)]
    return result if opener.passphrase_file is None else [
        *result, "--passphrase-file", str(opener.passphrase_file)
    ]  # fmt: skip


def recorder_streams(of: ZoneConfig) -> tuple[str, ...]:
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    return tuple(stream.name for stream in load(of.file).streams.streams)


def query_arguments(context: Context) -> Sequence[str]:
    """The service has left descriptor and checkpoint where the result goes."""
    of, name = zone(), _result_id(context)
    place = _results(of.file) / "spark" / name
    given = ["--descriptor", str(place / "descriptor.json"), "--result-id", name]
    given += ["--checkpoint", str(place / "checkpoint.cbor"), "--hub-id", of.hub_id.hex()]
    # The job only reads the archive: it knows no option about writing there.
    options = [option for option in storage(of).options() if option != "--accept-overwriting-store"]
    return [*given, *options, *reader_of(of), "--out", str(place / "out")]


def queried(context: Context, state: str) -> DagArtefact:
    name = _result_id(context)
    path = _results(zone().file) / "spark" / name / "out"
    return DagArtefact(kind="query", id=name, state=state, path=str(path))


def _result_id(context: Context) -> str:
    return str(context["params"]["result_id"])


def _results(file: Any) -> Any:
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    return load(file).query.results


def facts_words(context: Context) -> Sequence[str]:
    of, place = zone(), workplace(zone(), context)
    facts = ["--facts-out", str(place / "facts.jsonl"), "--collect"]
    return ["bridge", "reconcile", "--config", str(of.file), *facts]


def facts_arguments(context: Context) -> Sequence[str]:
    """Everything is written that the command writes, signed by the same reader."""
    from bridge.settings import load  # noqa: PLC0415 - only a task needs it

    place, reader = workplace(zone(), context), load(zone().file).reader
    result = ["--facts", str(place / "facts.jsonl"), *report_files(place / "report.json")]
    if reader is not None:
        result += ["--sign-with", str(reader.client)]
    if reader is not None and reader.passphrase_file is not None:
        result += ["--passphrase-file", str(reader.passphrase_file)]
    return result


def reconcile_words(context: Context) -> Sequence[str]:
    return bridge_reconcile(zone(), workplace(zone(), context) / "report.json")


def reconciled(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    """What is missing is an alarm, and so is what must never be; the report is kept before."""
    return judge_reconciliation(answer.document, context)


def reconciled_on_spark(context: Context) -> Sequence[DagArtefact]:
    file = workplace(zone(), context) / "report.json"
    if not file.exists():
        raise Alarm("no-report", "the job has left no report; its own task tells why.")
    return judge_reconciliation(json.loads(file.read_bytes())["report"], context)


def judge_reconciliation(report: Mapping[str, Any], context: Context) -> Sequence[DagArtefact]:
    from veen.digest import h  # noqa: PLC0415 - only a task needs it

    of, place = zone(), workplace(zone(), context)
    name = h(json.dumps({**report, "ok": True}, sort_keys=True).encode()).hex()
    folder = of.folder / "reports" / "reconcile" / name
    for file in sorted(place.glob("report.*")) + sorted(place.glob("gaps/*.json")):
        write_once(folder / file.name, file.read_bytes())
    events, path = dict(report["events"]), str(folder / "report.json")
    state = "faults" if report["alarms"] else "whole" if report["whole"] else "gaps"
    made = [DagArtefact(kind="reconcile", id=name, state=state, path=path, summary=events)]
    if report["alarms"]:
        kinds = sorted({item["alarm"] for item in report["alarms"]})
        raise Alarm(name[:16], f"what must never be: {', '.join(kinds)}; see {folder}.", made)
    if not report["whole"]:
        left = {
            event: n for event, n in events.items() if n and event not in ("imported", "excluded")
        }
        raise Alarm("gaps", f"the bridge has gaps: {left or 'see the report'}; see {folder}.", made)
    return made


_REST_SEC: Final = 60.0
_LOOK_SEC: Final = 0.2
_PLAIN: Final = frozenset(f"{ascii_letters}{digits}._:+-")
_LOG = logging.getLogger(__name__)


def due_of(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    due = answer.document["due"]
    if not due:
        raise NothingToDo("the policy lets no chunk go")
    _LOG.info("%d chunks may go: %s", len(due), ", ".join(due))
    return ()


def pruned_of(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    """Under the name of the run; a second try finds less to do, and both count."""
    counts = {"due": len(answer.document["due"]), "pruned": answer.document["pruned"]}
    name = "".join(item if item in _PLAIN else "_" for item in context["run_id"])
    return [DagArtefact(kind="retention", id=name, state="pruned", summary=counts)]


def stop_words(_context: Context) -> Sequence[str]:
    of = zone()
    if _is_supervised():
        _rest_file().touch(mode=0o600)
        if not _comes(_resting_file(), True):
            _rest_file().unlink(missing_ok=True)
            raise Alarm("no-rest", "the hub was asked to rest, and nobody let it; nothing is gone.")
    return ["hub", "stop", *data_dir(of)]


def start_words(_context: Context) -> Sequence[str]:
    """Whoever runs the hub of a zone starts it again; another one is started here."""
    of = zone()
    if not _is_supervised():
        return hub_start(of)
    _rest_file().unlink(missing_ok=True)
    if not _comes(_resting_file(), False):
        raise Alarm("no-wake", "the hub was not started again.")
    return ["hub", "health", "--hub", str(of.hub_data)]


def _is_supervised() -> bool:
    words = ["zone", "status", "--directory", str(zone().folder)]
    answer = Command(words, environment=environment()).answer("Restart the hub", accept=(0, 4))
    return any(item["stage"] in ("up", "starting") for item in answer.document["zones"])


def _comes(file: Path, is_there: bool) -> bool:
    deadline = time.monotonic() + _REST_SEC
    while file.exists() is not is_there:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SEC)
    return True


def _rest_file() -> Path:
    return zone().folder / "hub.rest"


def _resting_file() -> Path:
    return zone().folder / "hub.resting"
