"""A reconciliation: how it is run, here or on Spark, and what its report means for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from veen_alarm import Alarm
from veen_command import Answer
from veen_made import Made
from veen_words import bridge_reconcile, report_files
from veen_zone import keep_once, workplace, zone

Context = Mapping[str, Any]


def facts_words(context: Context) -> Sequence[str]:
    of, place = zone(), workplace(zone(), context)
    facts = ["--facts-out", str(place / "facts.jsonl"), "--collect"]
    return ["bridge", "reconcile", "--config", str(of.file), *facts]


def facts_arguments(context: Context) -> Sequence[str]:
    """Everything is written that the command writes, signed by the same reader."""
    from bridge.settings import load  # noqa: PLC0415 - only a task needs it

    place, reader = workplace(zone(), context), load(zone().file).reader
    found = ["--facts", str(place / "facts.jsonl"), *report_files(place / "report.json")]
    if reader is not None:
        found += ["--sign-with", str(reader.client)]
    if reader is not None and reader.passphrase_file is not None:
        found += ["--passphrase-file", str(reader.passphrase_file)]
    return found


def reconcile_words(context: Context) -> Sequence[str]:
    return bridge_reconcile(zone(), workplace(zone(), context) / "report.json")


def reconciled(answer: Answer, context: Context) -> Sequence[Made]:
    """What is missing is an alarm, and so is what must never be; the report is kept before."""
    return judge_reconciliation(answer.document, context)


def reconciled_on_spark(context: Context) -> Sequence[Made]:
    file = workplace(zone(), context) / "report.json"
    if not file.exists():
        raise Alarm("no-report", "the job has left no report; its own task tells why.")
    return judge_reconciliation(json.loads(file.read_bytes())["report"], context)


def judge_reconciliation(report: Mapping[str, Any], context: Context) -> Sequence[Made]:
    from veen.digest import h  # noqa: PLC0415 - only a task needs it

    of, place = zone(), workplace(zone(), context)
    name = h(json.dumps({**report, "ok": True}, sort_keys=True).encode()).hex()
    folder = of.folder / "reports" / "reconcile" / name
    for file in sorted(place.glob("report.*")) + sorted(place.glob("gaps/*.json")):
        keep_once(folder / file.name, file.read_bytes())
    events, path = dict(report["events"]), str(folder / "report.json")
    state = "faults" if report["alarms"] else "whole" if report["whole"] else "gaps"
    made = [Made(kind="reconcile", id=name, state=state, path=path, summary=events)]
    if report["alarms"]:
        kinds = sorted({one["alarm"] for one in report["alarms"]})
        raise Alarm(name[:16], f"what must never be: {', '.join(kinds)}; see {folder}.", made)
    if not report["whole"]:
        left = {one: n for one, n in events.items() if n and one not in ("imported", "excluded")}
        raise Alarm("gaps", f"the bridge has gaps: {left or 'see the report'}; see {folder}.", made)
    return made
