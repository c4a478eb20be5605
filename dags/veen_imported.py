"""An import: what came, what people have said about it, and what became of it.

Nothing here is read from XCom, which whoever may write to the DAG may write, too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import veen_question as questions
from veen_alarm import Alarm
from veen_answers import recorded
from veen_carriers import import_state, seen
from veen_command import Answer
from veen_decision import Decision, decide, traces
from veen_made import Made, Nothing, kept, known
from veen_notify import tell
from veen_run_files import read_run_file, write_run_file
from veen_words import bridge_verify, checkpoint_create
from veen_zone import keep_once, workplace, zone

Context = Mapping[str, Any]
VERIFIED, LATER, OBSTRUCTED, HEARTBEAT, REFUSED, DECIDED = (
    "verified", "later", "obstructed", "heartbeat", "refused", "decided",
)  # fmt: skip
"""What ``verify`` makes of a carrier. People are asked about VERIFIED ones; LATER ones did not fit
into the question, and OBSTRUCTED ones are valid and cannot go in as things are."""

LEFT: Final = "left"
"""The run file with how many carriers this run did not take up."""

_UNTOUCHED: Final = (LATER, OBSTRUCTED)
"""Carriers that the run leaves where they are, for another run to ask about."""

_MOST_TOLD: Final = 3
_LEFT: Final = ("waiting", "blocked")
_BAD: Final = (REFUSED, "quarantined", "frozen")
_LOG = logging.getLogger(__name__)


def verify_words(context: Context) -> Sequence[str]:
    bags = [bag for one in _came(context) for bag in one["bags"]]
    transcript = workplace(zone(), context) / "transcript.txt"
    return bridge_verify(bags, ["--config", str(zone().file)], transcript)


def found_valid(answer: Answer, context: Context) -> Sequence[Made]:
    """Each carrier by its bundle; what went in before needs nobody's word again."""
    rows = [{**row, "id": _name(row), "state": _judged(row)} for row in answer.document["carriers"]]
    wanted = list({one["id"]: one for one in rows if one["state"] == VERIFIED}.values())
    wanted.sort(key=lambda one: (one["stream"], one["from_seq"], one["id"]))
    obstructed = [one for one in rows if one["state"] == OBSTRUCTED]
    refused = sum(one["state"] == REFUSED for one in rows)
    question = questions.compose(wanted, obstructed, refused)
    for one in rows:
        if one["state"] == VERIFIED and one["id"] not in question.bundles:
            one["state"] = LATER
    write_run_file(context, questions.FILE, questions.document(question))
    write_run_file(context, "verified", rows)
    return [
        Made(
            kind="import", id=one["id"], state=one["state"], path=one["bags"][0], summary=_told(one)
        )
        for one in rows
        if one["state"] != DECIDED
    ]


def asked_about(context: Context) -> tuple[str, ...]:
    """The bundles that people have to decide about."""
    return questions.asked(context).bundles


def description(context: Context) -> str:
    """What people are shown: every bundle that they decide about."""
    return questions.asked(context).body


def import_words(context: Context) -> Sequence[str]:
    if not _came(context):
        raise Nothing("no carrier came")
    bundles, found = asked_about(context), _decision(context)
    write_run_file(context, "decision", asdict(found))
    people = ", ".join(found.people) or ("nobody" if bundles else "nobody was asked")
    words = ["bridge", "import", "--config", str(zone().file), "--operator", people]
    for bag in _on_medium(context, (*_UNTOUCHED, VERIFIED) if found.refused else _UNTOUCHED):
        words += ["--medium", bag]
    if found.refused:
        _LOG.error("the approval is refused: %s", found.refused)
        for one in bundles:
            words += ["--unapproved", one]
        why = f"{found.refused} (Airflow's run {context['run_id']})"
        return [*words, "--reason", why, *_only(_approved_before())]
    _LOG.info("%s: %s", "rejected by" if found.is_rejected else "approved by", people)
    if found.is_rejected and bundles:
        for one in bundles:
            words += ["--reject", one]
        why = f"Airflow's run {context['run_id']}"
        return [*words, "--reason", why, *_only(_approved_before())]
    return [*words, *_only([*bundles, *_approved_before()])]


def let_in(answer: Answer, context: Context) -> Sequence[Made]:
    found, bundles = Decision(**read_run_file(context, "decision")), asked_about(context)
    made = [
        # Whoever was asked about other bundles has said nothing about this one.
        _became(row, found.said if _name(row) in bundles else _decided_by(_name(row)))
        for row in answer.document["carriers"]
        if not _was_here(row)
    ]
    write_run_file(context, "imported", [{"id": one.id, "state": one.state} for one in made])
    if found.refused:
        raise Alarm("approval", f"nothing was let in: {found.refused}.", made)
    left = {bag for one in _rows(context, *_UNTOUCHED) for bag in one["bags"]}
    for one in _came(context):
        if not left & set(one["bags"]) and not _is_open(one, answer):
            keep_once(seen(one["key"]), json.dumps(one).encode())
    return made


def remaining(context: Context) -> Sequence[Made]:
    """Whether another run has to go on with what did not fit into this one or its question: then
    the task succeeds, and tells of a medium as if it had just come.
    """
    later, left = len(_rows(context, LATER)), int(read_run_file(context, LEFT) or 0)
    if not any(seen(one["key"]).exists() for one in _came(context)):
        # The next run would take up the same carriers again.
        left = 0
    if not later and not left:
        raise Nothing("every bundle was in the question")
    _LOG.info("the next run asks about %d more bundles and takes up %d carriers", later, left)
    return ()


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
    became = _became_of(context, "imported", "heartbeat", "duplicate")
    refused = [
        one["id"]
        for name in ("verified", "imported")
        for one in read_run_file(context, name) or ()
        # What went in, from whichever of its copies, is not refused.
        if one["state"] in _BAD and one["id"] not in became
    ]
    if refused:
        names = ", ".join(sorted({one[:16] for one in refused}))
        raise Alarm(refused[0][:16], f"carriers were refused and are in quarantine: {names}.")
    if held_back := _rows(context, OBSTRUCTED):
        why = "; ".join(f"{one['id'][:16]}: {one['obstacle']}" for one in held_back[:_MOST_TOLD])
        raise Alarm("obstacle", f"{len(held_back)} valid bundles cannot go in as things are: {why}")
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
    made = read_run_file(context, "imported") or ()
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
    return list(read_run_file(context, "carriers") or ())


def _rows(context: Context, *states: str) -> list[dict[str, Any]]:
    """The carriers that ``verify`` left in one of these states."""
    return [one for one in read_run_file(context, "verified") or () if one["state"] in states]


def _on_medium(context: Context, without: Sequence[str]) -> list[str]:
    """The bags to fetch. What lies in the airlock is taken from there."""
    left = {bag for one in _rows(context, *without) for bag in one["bags"]}
    bags = [bag for one in _came(context) for bag in one["bags"] if bag not in left]
    return [bag for bag in bags if not Path(bag).is_relative_to(import_state())]


def _decision(context: Context) -> Decision:
    """What people have decided; where nobody was asked there is nothing to be read."""
    question, approval = questions.asked(context), zone().dags.approval
    if not question.bundles:
        return Decision()
    noted = traces(context, approval.needed + 1)
    return decide(question, recorded(context), noted, approval.people)


def _judged(row: Mapping[str, Any]) -> str:
    if row["reason"] is not None:
        return REFUSED
    if not row["bundle_id"]:
        return HEARTBEAT
    if _is_decided(_name(row)):
        _LOG.info("bundle %s was decided about before", row["bundle_id"])
        return DECIDED
    return OBSTRUCTED if row.get("obstacle") else VERIFIED


def _name(row: Mapping[str, Any]) -> str:
    from bridge.carrier.bag_path import carrier_name  # noqa: PLC0415 - only a task needs it

    if row["bundle_id"]:
        return str(row["bundle_id"])
    # A name on a medium may be any bytes; what cannot be the name of a file here is a hash.
    name = carrier_name(row.get("name") or Path(row["bags"][0]).name)
    return name if name.startswith("carrier-") else f"carrier-{name}"


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: row.get(name) for name in ("stream", "from_seq", "to_seq", "reason", "imported")}
    return told | ({"obstacle": row["obstacle"]} if row.get("obstacle") else {})
