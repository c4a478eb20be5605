"""An audit: what its job is told, the report it leaves, and how that is recorded and anchored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veen_alarm import Alarm
from veen_command import Answer, Command, environment
from veen_kept import checkpoint_of
from veen_made import Made, Nothing
from veen_run_files import read_run_file, write_run_file
from veen_words import (
    anchor_list,
    anchor_publish,
    audit_terms,
    hub_identity,
    record_file,
    store,
)
from veen_zone import keep_once, workplace, zone

Context = Mapping[str, Any]


def terms_words(context: Context) -> Sequence[str]:
    return audit_terms(zone(), workplace(zone(), context) / "terms.json")


def audit_arguments(context: Context) -> Sequence[str]:
    of, place = zone(), workplace(zone(), context)
    who = of.dags.acting
    found = [*store(of), *hub_identity(of), "--terms", str(place / "terms.json")]
    found += ["--report", str(place / "report.json")]
    if who.client is not None:
        found += ["--sign-with", str(who.client)]
    if who.client is not None and who.passphrase_file is not None:
        found += ["--passphrase-file", str(who.passphrase_file)]
    return [*found, "--hashes-only"] if context["params"].get("hashes_only") else found


def report_words(context: Context) -> Sequence[str]:
    """Record what an audit has found: one line in a file of its own, which is read once."""
    of = zone()
    file, digest, report = _audited(context)
    folder = of.folder / "reports" / "audit" / digest
    keep_once(folder / "report.json", file.read_bytes())
    payload = {name: report[name] for name in ("ok", "entries", "chunks", "labels")}
    payload |= {"report": digest, "faults": len(report["faults"])}
    line = json.dumps({"payload": payload}, sort_keys=True) + "\n"
    keep_once(folder / "event" / "event.jsonl", line.encode())
    return record_file(of, folder / "event" / "event.jsonl", context["dag"].dag_id)


def recorded(_answer: Answer, context: Context) -> Sequence[Made]:
    _file, digest, report = _audited(context)
    counts = {name: report[name] for name in ("ok", "entries", "chunks", "labels")}
    return [
        Made(
            kind="audit",
            id=digest,
            state="whole" if report["ok"] else "faults",
            path=str(zone().folder / "reports" / "audit" / digest / "report.json"),
            summary=counts | {"faults": len(report["faults"])},
        )
    ]


def checkpointed(answer: Answer, context: Context) -> Sequence[Made]:
    """The checkpoint that covers the report; which one it is, the next task does not ask XCom."""
    made = checkpoint_of("signed", is_last=True)(answer, context)
    write_run_file(context, "checkpoint", made[0].id)
    return made


def anchored_words(context: Context) -> Sequence[str]:
    """Publish the checkpoint of the report, unless that was done before."""
    of = zone()
    made = read_run_file(context, "checkpoint")
    listed = Command(anchor_list(of), environment=environment()).answer("An anchor is late")
    if any(one["checkpoint_id"] == made for one in listed.document["anchors"]):
        return anchor_list(of)
    return [*anchor_publish(of), made]


def judged(context: Context) -> Sequence[Made]:
    """Faults fail the run, once the report of them is safe; so does an audit without a report."""
    if zone().storage is None:
        raise Nothing("this zone has no [storage]: there is no archive to audit")
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
    from veen.canonical_json import encode  # noqa: PLC0415 - only a task needs them
    from veen.digest import h  # noqa: PLC0415

    file = workplace(zone(), context) / "report.json"
    if not file.exists():
        raise Nothing("the audit has left no report; its own task tells why")
    report = json.loads(file.read_bytes())["report"]
    return file, h(encode(report)).hex(), report
