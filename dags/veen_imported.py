"""An import: what came, what people have said about it, and what became of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from veen_alarm import Alarm
from veen_carriers import import_state, seen
from veen_command import Answer
from veen_made import Made, Nothing, kept, known
from veen_notify import tell
from veen_words import bridge_verify, checkpoint_create
from veen_zone import keep_once, workplace, zone

APPROVE: Final = "Approve"
REJECT: Final = "Reject"
Context = Mapping[str, Any]
_LEFT: Final = ("waiting", "blocked")
_BAD: Final = ("refused", "quarantined", "frozen")
_LOG = logging.getLogger(__name__)


def verify_words(context: Context) -> Sequence[str]:
    from bridge.settings import load  # noqa: PLC0415 - only a task needs it

    settings = load(zone().file)
    keys = settings.importing.zone_keys if settings.importing else ()
    level = ["--trust", str(settings.trust)]
    for key in keys:
        level += ["--key", str(key)]
    bags = [bag for one in _came(context) for bag in one["bags"]]
    return bridge_verify(bags, level, workplace(zone(), context) / "transcript.txt")


def found_valid(answer: Answer, _context: Context) -> Sequence[Made]:
    """Each carrier by its bundle; what went in before needs nobody's word again."""
    made = []
    for row in answer.document["carriers"]:
        name, is_valid = _name(row), row["reason"] is None
        if is_valid and _is_decided(name):
            _LOG.info("bundle %s was decided about before", name)
            continue
        state = ("verified" if row["bundle_id"] else "heartbeat") if is_valid else "refused"
        made.append(
            Made(kind="import", id=name, state=state, path=row["bags"][0], summary=_told(row))
        )
    return made


def asked_about(context: Context) -> list[str]:
    """The bundles that people have to decide about."""
    made = context["ti"].xcom_pull(task_ids="verify")["made"]
    return [one["id"] for one in made if one["state"] == "verified"]


def description(context: Context) -> str:
    """What people are shown: what was verified, as the transcript has it."""
    text = (workplace(zone(), context) / "transcript.txt").read_text()
    return f"```\n{text[:20_000]}\n```"


def earlier(context: Context, number: int) -> list[dict[str, str]]:
    """What was said by those who were asked before."""
    names = [f"approve_{one}" for one in range(1, number)]
    found = [context["ti"].xcom_pull(task_ids=one) for one in names]
    return [one for one in found if one]


def import_words(context: Context) -> Sequence[str]:
    if not _came(context):
        raise Nothing("no carrier came")
    of, bundles = zone(), asked_about(context)
    said = earlier(context, of.dags.approval.needed + 1)
    rejected = [one["person"] for one in said if one["decision"] == REJECT]
    approved = [one["person"] for one in said if one["decision"] == APPROVE]
    if bundles and not rejected and len({one["id"] for one in said}) < of.dags.approval.needed:
        raise Alarm("undecided", "not as many people as are needed have decided; nothing goes in.")
    people = ", ".join(rejected or approved) or "nobody was asked"
    words = ["bridge", "import", "--config", str(of.file), "--operator", people]
    for bag in _on_medium(context):
        words += ["--medium", bag]
    _LOG.info("%s: %s", "rejected by" if rejected else "approved by", people)
    if rejected and bundles:
        why = f"Airflow's run {context['run_id']}"
        for one in bundles:
            words += ["--reject", one]
        return [*words, "--reason", why, *_only(_approved_before())]
    return [*words, *_only([*bundles, *_approved_before()])]


def let_in(answer: Answer, context: Context) -> Sequence[Made]:
    of = zone()
    said = earlier(context, of.dags.approval.needed + 1)
    people, asked = [f"{one['person']}: {one['decision']}" for one in said], asked_about(context)
    made = [
        # Whoever was asked about other bundles has said nothing about this one.
        _became(row, people if _name(row) in asked else _decided_by(_name(row)))
        for row in answer.document["carriers"]
        if not _was_here(row)
    ]
    for one in _came(context):
        if not _is_open(one, answer):
            keep_once(seen(one["key"]), json.dumps(one).encode())
    return made


def checkpoint_words(context: Context) -> Sequence[str]:
    if not _became_of(context, "imported", "heartbeat"):
        raise Nothing("nothing went in")
    return checkpoint_create(zone())


def receipt_words(context: Context) -> Sequence[Sequence[str]]:
    found = _became_of(context, "imported")
    if not found:
        raise Nothing("nothing went in that has a receipt")
    return [["bridge", "receipt", one, "--config", str(zone().file)] for one in found]


def shown(answer: Answer, _context: Context) -> Sequence[Made]:
    for line in answer.document["text"].splitlines():
        _LOG.info("%s", line)
    return ()


def judged(context: Context) -> Sequence[Made]:
    """A carrier that was refused fails the run; one that has to wait is told of."""
    refused = [
        one["id"]
        for task in ("verify", "import")
        for one in context["ti"].xcom_pull(task_ids=task)["made"]
        if one["state"] in _BAD
    ]
    if refused:
        names = ", ".join(sorted({one[:16] for one in refused}))
        raise Alarm(refused[0][:16], f"carriers were refused and are in quarantine: {names}.")
    if left := _became_of(context, *_LEFT):
        tell(context, f"{len(left)} bundles wait: for a gap to close, or for signatures")
    return ()


def _was_here(row: Mapping[str, Any]) -> bool:
    """A bundle that an earlier run has let in, and told of."""
    return row["state"] == "duplicate" and known(zone(), "import", _name(row)) == "imported"


def _became(row: Mapping[str, Any], people: Sequence[str]) -> Made:
    """A bundle that a first, killed try has let in is a duplicate for the second."""
    receipt = import_state() / "receipts" / f"{row['bundle_id']}.svg"
    state = str(row["state"])
    if state == "duplicate" and receipt.exists():
        state = "imported"
    path = str(receipt) if receipt.exists() else None
    told = {**_told(row), "decided_by": list(people), "told": row["told"]}
    return Made(kind="import", id=_name(row), state=state, path=path, summary=told)


def _is_decided(name: str) -> bool:
    """It is in, or people have let it in and it waits for something else."""
    state = known(zone(), "import", name)
    return state == "imported" or (state in _LEFT and bool(_decided_by(name)))


def _decided_by(name: str) -> list[str]:
    found = kept(zone(), "import", name)
    return list(found.summary.get("decided_by") or ()) if found else []


def _became_of(context: Context, *states: str) -> list[str]:
    made = context["ti"].xcom_pull(task_ids="import")["made"]
    return [one["id"] for one in made if one["state"] in states]


def _is_open(came: Mapping[str, Any], answer: Answer) -> bool:
    """Volumes of it are still to come."""
    names = {Path(one).name for one in came["bags"]}
    open_ones = {row["name"] for row in answer.document["carriers"] if row["state"] == "incomplete"}
    return bool(names & open_ones)


def _approved_before() -> list[str]:
    """Bundles that people have let in and that still wait for something else."""
    from recorder.artefact import FOLDER, decode  # noqa: PLC0415 - only a task needs them

    folder = zone().folder / FOLDER / "import"
    found = [decode(file) for file in sorted(folder.glob("*.json"))]
    return [one.id for one in found if one.state in _LEFT and one.summary.get("decided_by")]


def _only(bundles: Sequence[str]) -> Iterator[str]:
    for one in bundles or ("none",):
        yield from ("--only", one)


def _came(context: Context) -> list[dict[str, Any]]:
    return list(context["ti"].xcom_pull(task_ids="carriers") or ())


def _on_medium(context: Context) -> list[str]:
    """The bags that were verified; those in the inbox are taken from there."""
    inbox = import_state() / "inbox"
    bags = [bag for one in _came(context) for bag in one["bags"]]
    return [bag for bag in bags if not Path(bag).is_relative_to(inbox)]


def _name(row: Mapping[str, Any]) -> str:
    from bridge.carrier.bag_path import carrier_name  # noqa: PLC0415 - only a task needs it

    if row["bundle_id"]:
        return str(row["bundle_id"])
    # A name on a medium may be any bytes; what cannot be the name of a file here is a hash.
    name = carrier_name(row.get("name") or Path(row["bags"][0]).name)
    return name if name.startswith("carrier-") else f"carrier-{name}"


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in ("stream", "from_seq", "to_seq", "reason", "imported")}
