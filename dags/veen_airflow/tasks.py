"""Command lines, Spark arguments and artefacts of the DAGs for audit, export, fold, query,
reconciliation and retention.

Retention stops the hub. In a zone started by ``veen zone up`` the supervisor is asked to do it:
while the file ``hub.rest`` exists the hub stays stopped, which ``hub.resting`` confirms.
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
from veen_airflow.zone import run_directory, write_once, zone
from zone.config import ZoneConfig

Context = Mapping[str, Any]
_SCHEDULED: Final = "scheduled"
_REST_SEC: Final = 60.0
_LOOK_SEC: Final = 0.2
_PLAIN: Final = frozenset(f"{ascii_letters}{digits}._:+-")
_LOG = logging.getLogger(__name__)


def terms_argv(context: Context) -> Sequence[str]:
    return audit_terms(zone(), run_directory(zone(), context) / "terms.json")


def audit_arguments(context: Context) -> Sequence[str]:
    config, place = zone(), run_directory(zone(), context)
    who = config.dags.acting
    arguments = [*store(config), *hub_identity(config), "--terms", str(place / "terms.json")]
    arguments += ["--report", str(place / "report.json")]
    if who.client is not None:
        arguments += ["--sign-with", str(who.client)]
    if who.client is not None and who.passphrase_file is not None:
        arguments += ["--passphrase-file", str(who.passphrase_file)]
    return [*arguments, "--hashes-only"] if context["params"].get("hashes_only") else arguments


def report_argv(context: Context) -> Sequence[str]:
    """The recording of an audit's result: a line in a file of its own, which is read once."""
    config = zone()
    file, digest, report = _audited(context)
    folder = config.folder / "reports" / "audit" / digest
    write_once(folder / "report.json", file.read_bytes())
    payload = {name: report[name] for name in ("ok", "entries", "chunks", "labels")}
    payload |= {"report": digest, "faults": len(report["faults"])}
    line = json.dumps({"payload": payload}, sort_keys=True) + "\n"
    write_once(folder / "event" / "event.jsonl", line.encode())
    return record_file(config, folder / "event" / "event.jsonl", context["dag"].dag_id)


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
    """The checkpoint that covers the report, noted in a run file for the next task."""
    artefacts = checkpoint_of("signed", is_last=True)(answer, context)
    write_run_file(context, "checkpoint", artefacts[0].id)
    return artefacts


def anchored_argv(context: Context) -> Sequence[str]:
    """The publication of the report's checkpoint, unless it is already anchored."""
    config = zone()
    checkpoint_id = read_run_file(context, "checkpoint")
    listed = Command(anchor_list(config), environment=environment()).answer("An anchor is late")
    if any(anchor["checkpoint_id"] == checkpoint_id for anchor in listed.document["anchors"]):
        return anchor_list(config)
    return [*anchor_publish(config), checkpoint_id]


def judged(context: Context) -> Sequence[DagArtefact]:
    """Fail the run for faults, after their report is stored, or if there is no report."""
    if zone().storage is None:
        raise NothingToDo("this zone has no [storage]: there is no archive to audit")
    if not (run_directory(zone(), context) / "report.json").exists():
        raise Alarm("no-report", "the audit left no report; see the log of its task.")
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
    """The report of this run, and its digest, which does not depend on the signer."""
    from veen.digest import h  # noqa: PLC0415
    from veen.wire.canonical_json import encode  # noqa: PLC0415 - only a task needs them

    file = run_directory(zone(), context) / "report.json"
    if not file.exists():
        raise NothingToDo("the audit left no report; see the log of its task")
    report = json.loads(file.read_bytes())["report"]
    return file, h(encode(report)).hex(), report


def export_argv(context: Context) -> Sequence[str]:
    """The export; without its medium a scheduled run is skipped, and a manual run is refused."""
    asked = dict(context["params"])
    if problem := _missing_medium(Path(asked["medium"])):
        raise (NothingToDo if context["dag_run"].run_type == _SCHEDULED else DagRefusal)(problem)
    return bridge_export(zone(), asked, f"airflow:{context['run_id']}")


def check_argv(context: Context) -> Sequence[str]:
    """The verification of the medium's bytes; signers are verified by the other zone."""
    transcript = run_directory(zone(), context) / "transcript.txt"
    return bridge_verify([str(context["params"]["medium"])], ["--level", "intact"], transcript)


def _missing_medium(medium: Path) -> str | None:
    """Why there is no medium. The directory is not created: it would be on a local disk."""
    if not medium.is_dir():
        return f"the medium is not there: {medium} is no directory; nothing was exported"
    if zone().dags.medium_is_mount and not medium.is_mount():
        return f"nothing is mounted at {medium}, and medium_is_mount is true; nothing was exported"
    return None


def snapshot_argv(verb: str) -> Callable[[Context], Sequence[Sequence[str]]]:
    """The command for each stream that is folded; ``verb`` is create or verify."""

    def argv(context: Context) -> Sequence[Sequence[str]]:
        config, place = zone(), run_directory(zone(), context)
        reader, streams = reader_of(config), config.dags.fold.streams or recorder_streams(config)
        files = {stream: place / f"{stream.replace('/', '.')}.snapshot" for stream in streams}
        if verb == "verify":
            files = {stream: file for stream, file in files.items() if file.exists()}
        if not files:
            raise NothingToDo("no stream has events in the archive yet")
        return [snapshot(config, verb, stream, reader, file) for stream, file in files.items()]

    return argv


def folded(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    """The artefact of a verified snapshot, stored under a descriptive name."""
    config, document = zone(), answer.document
    stream = str(document["stream"]).replace("/", ".")
    name = f"{document['state_class']}-{stream}-{document['upto_stream_seq']}"
    path = config.folder / "reports" / "fold" / f"{name}.snapshot"
    write_once(path, (run_directory(config, context) / f"{stream}.snapshot").read_bytes())
    hashes = {field: document[field] for field in ("state_hash", "mmr_root", "upto_stream_seq")}
    return [DagArtefact(kind="fold", id=name, state="verified", path=str(path), summary=hashes)]


def events_arguments(context: Context) -> Sequence[str]:
    """The arguments for the table of events, if the zone's file allows plaintext at rest."""
    config = zone()
    if not config.dags.fold.plaintext_at_rest:
        raise NothingToDo(
            "the table of events is not written: [dags.fold] plaintext_at_rest is not true"
        )
    terms = ["--terms", str(run_directory(config, context) / "terms.json")]
    return [*store(config), *reader_of(config), *terms, "--plaintext-at-rest", "yes"]


def reader_of(config: ZoneConfig) -> list[str]:
    """Options for the keys that open events: the zone's reader, else the recorder's own."""
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    opener = load(config.file).hub.opener
    options = ["--client", str(opener.client)]
    return options if opener.passphrase_file is None else [
        *options, "--passphrase-file", str(opener.passphrase_file)
    ]  # fmt: skip


def recorder_streams(config: ZoneConfig) -> tuple[str, ...]:
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    return tuple(stream.name for stream in load(config.file).streams.streams)


def query_arguments(context: Context) -> Sequence[str]:
    """The arguments of a query; the service wrote descriptor and checkpoint beside the result."""
    config, name = zone(), _result_id(context)
    place = _results(config.file) / "spark" / name
    given = ["--descriptor", str(place / "descriptor.json"), "--result-id", name]
    given += ["--checkpoint", str(place / "checkpoint.cbor"), "--hub-id", config.hub_id.hex()]
    return [*given, *storage(config).arguments(), *reader_of(config), "--out", str(place / "out")]


def queried(context: Context, state: str) -> DagArtefact:
    name = _result_id(context)
    path = _results(zone().file) / "spark" / name / "out"
    return DagArtefact(kind="query", id=name, state=state, path=str(path))


def _result_id(context: Context) -> str:
    return str(context["params"]["result_id"])


def _results(file: Any) -> Any:
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    return load(file).query.results


def facts_argv(context: Context) -> Sequence[str]:
    config, place = zone(), run_directory(zone(), context)
    facts = ["--facts-out", str(place / "facts.jsonl"), "--collect"]
    return ["bridge", "reconcile", "--config", str(config.file), *facts]


def facts_arguments(context: Context) -> Sequence[str]:
    """The arguments for the same outputs as the command's, signed by the same reader."""
    from bridge.settings import load  # noqa: PLC0415 - only a task needs it

    place, reader = run_directory(zone(), context), load(zone().file).reader
    arguments = ["--facts", str(place / "facts.jsonl"), *report_files(place / "report.json")]
    if reader is not None:
        arguments += ["--sign-with", str(reader.client)]
    if reader is not None and reader.passphrase_file is not None:
        arguments += ["--passphrase-file", str(reader.passphrase_file)]
    return arguments


def reconcile_argv(context: Context) -> Sequence[str]:
    return bridge_reconcile(zone(), run_directory(zone(), context) / "report.json")


def reconciled(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    """Raise an alarm for gaps and contradictions, after the report is stored.

    The report is that of the signed file, as on Spark; the answer adds readable times to it.
    """
    if "events" not in answer.document:
        why = answer.document.get("detail") or answer.last_line
        raise Alarm("no-report", f"the command gave no report: {why}")
    return reconciled_on_spark(context)


def reconciled_on_spark(context: Context) -> Sequence[DagArtefact]:
    file = run_directory(zone(), context) / "report.json"
    if not file.exists():
        raise Alarm("no-report", "the job left no report; see the log of its task.")
    return judge_reconciliation(json.loads(file.read_bytes())["report"], context)


def judge_reconciliation(report: Mapping[str, Any], context: Context) -> Sequence[DagArtefact]:
    from veen.digest import h  # noqa: PLC0415 - only a task needs it

    config, place = zone(), run_directory(zone(), context)
    name = h(json.dumps({**report, "ok": True}, sort_keys=True).encode()).hex()
    folder = config.folder / "reports" / "reconcile" / name
    for file in sorted(place.glob("report.*")) + sorted(place.glob("gaps/*.json")):
        write_once(folder / file.name, file.read_bytes())
    events, path = dict(report["events"]), str(folder / "report.json")
    state = "faults" if report["alarms"] else "whole" if report["whole"] else "gaps"
    artefacts = [DagArtefact(kind="reconcile", id=name, state=state, path=path, summary=events)]
    if report["alarms"]:
        kinds = sorted({alarm["alarm"] for alarm in report["alarms"]})
        raise Alarm(name[:16], f"never allowed: {', '.join(kinds)}; see {folder}.", artefacts)
    if not report["whole"]:
        left = {
            event: n for event, n in events.items() if n and event not in ("imported", "excluded")
        }
        raise Alarm(
            "gaps", f"the bridge has gaps: {left or 'see the report'}; see {folder}.", artefacts
        )
    return artefacts


def due_of(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    chunks = answer.document["due"]
    if not chunks:
        raise NothingToDo("the retention policy releases no chunk")
    _LOG.info("%d chunks may be pruned: %s", len(chunks), ", ".join(chunks))
    return ()


def pruned_of(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    """The artefact of a pruning, with the id of the run."""
    counts = {"due": len(answer.document["due"]), "pruned": answer.document["pruned"]}
    name = "".join(character if character in _PLAIN else "_" for character in context["run_id"])
    return [DagArtefact(kind="retention", id=name, state="pruned", summary=counts)]


def stop_argv(_context: Context) -> Sequence[str]:
    config = zone()
    if _is_supervised():
        _rest_file().touch(mode=0o600)
        if not _wait_for_file(_resting_file(), True):
            _rest_file().unlink(missing_ok=True)
            raise Alarm("no-rest", "the hub was not stopped on request; nothing was pruned.")
    return ["hub", "stop", *data_dir(config)]


def start_argv(_context: Context) -> Sequence[str]:
    """The restart of the hub: by the zone's supervisor, or by this command."""
    config = zone()
    if not _is_supervised():
        return hub_start(config)
    _rest_file().unlink(missing_ok=True)
    if not _wait_for_file(_resting_file(), False):
        raise Alarm("no-wake", "the hub was not started again.")
    return ["hub", "health", "--hub", str(config.hub_data)]


def _is_supervised() -> bool:
    argv = ["zone", "status", "--directory", str(zone().folder)]
    answer = Command(argv, environment=environment()).answer("Restart the hub", accept=(0, 4))
    return any(status["stage"] in ("up", "starting") for status in answer.document["zones"])


def _wait_for_file(file: Path, is_there: bool) -> bool:
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
