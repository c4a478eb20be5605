"""The carriers that lie on a medium or in the inbox, and which of them are done with.

An import: what came, what people have said about it, and what became of it.

Nothing here is read from XCom, which whoever may write to the DAG may write, too.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veen_airflow.artefacts import stored
from veen_airflow.zone import zone

if TYPE_CHECKING:
    from bridge.carrier.directory import BagPath, Directory
from dataclasses import asdict

from veen_airflow import approval as questions
from veen_airflow.alerts import Alarm, tell
from veen_airflow.approval import Decision, decide, recorded, traces
from veen_airflow.artefacts import DagArtefact, NothingToDo, known
from veen_airflow.commands import CommandAnswer, bridge_verify, checkpoint_create
from veen_airflow.results import read_run_file, write_run_file
from veen_airflow.zone import workplace, write_once

Context = Mapping[str, Any]
_MOST: Final = 2_000
"""So many entries of a bag are looked at; one with more is refused by whoever verifies it."""
MOST_WORDS: Final = 512 << 10
"""Bytes of the paths that one run passes to a command: the system bounds them at 2 MiB."""
_PER_PATH: Final = 32
"""What a path costs beside its own bytes: the option before it, and pointers."""
_LOG = logging.getLogger(__name__)


def undecided(context: Context) -> list[dict[str, Any]]:
    """The carriers on the medium and in the inbox that no run has come to an end with.

    A medium that cannot be listed keeps nobody from the inbox.
    """
    from bridge.carrier.medium import NoBags, carriers  # noqa: PLC0415 - only a task needs them
    from veen.errors import VeenError  # noqa: PLC0415

    medium = Path(context["params"]["medium"])
    places = [[medium] if medium.is_dir() else [], *([path] for path in _inbox()), *_unasked()]
    result: list[tuple[BagPath, ...]] = []
    for place in filter(None, places):
        try:
            result += carriers(place)
        except NoBags:
            continue
        except (OSError, VeenError) as error:
            _LOG.warning("%s is not looked at: %s", place[0], error)
    signed = [item for item in result if all(map(_is_signed, item))]
    detail = [{"key": _key(bags), "bags": [str(bag) for bag in bags]} for bags in signed]
    return [item for item in detail if not seen(str(item["key"])).exists()]


def batch(value: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What one run takes up: as many carriers as the words of a command hold.

    Bags that a trusted exporter has signed come first, and carriers that have one: anybody can put
    many others beside them. Of a carrier with more bags than fit, the last ones are left out.
    """
    is_signed = _signed_by_trusted()
    ranked = [
        {**item, "bags": sorted(item["bags"], key=lambda bag: not is_signed(bag))} for item in value
    ]
    ranked.sort(key=lambda item: not is_signed(item["bags"][0]))
    taken, room = list[dict[str, Any]](), MOST_WORDS
    for item in ranked:
        sizes = accumulate(len(os.fsencode(bag)) + _PER_PATH for bag in item["bags"])
        fitting = [bag for bag, size in zip(item["bags"], sizes, strict=True) if size <= room]
        if taken and len(fitting) < len(item["bags"]):
            break
        taken.append({**item, "bags": fitting})
        room -= sum(len(os.fsencode(bag)) + _PER_PATH for bag in fitting)
    return taken


def _signed_by_trusted() -> Callable[[str], bool]:
    """Whether a trusted exporter has signed a bag; only its tag files are read, and once."""
    from bridge.carrier.directory import BagPath  # noqa: PLC0415 - only a task needs them
    from bridge.importer.staging import check_signed  # noqa: PLC0415
    from bridge.settings import load  # noqa: PLC0415
    from bridge.trust import TrustStore  # noqa: PLC0415
    from veen.errors import VeenError  # noqa: PLC0415

    settings = load(zone().file)
    trust = TrustStore.read(settings.trust)

    @functools.cache
    def is_signed(bag: str) -> bool:
        try:
            check_signed(BagPath.of(Path(bag)), trust, sys.maxsize)
        except (OSError, VeenError):
            return False
        return True

    return is_signed


def seen(key: str) -> Path:
    """What is left of a carrier that a run has come to an end with."""
    return zone().folder / "runs" / "carriers" / f"{key}.json"


def import_state() -> Path:
    from bridge.settings import load  # noqa: PLC0415 - only a task needs it

    importing = load(zone().file).importing
    return importing.state if importing else zone().folder


def _inbox() -> list[Path]:
    folder = import_state() / "inbox"
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())


def _is_signed(bag: BagPath) -> bool:
    """Whether it is finished; one that leads out of the medium is, so that it is judged."""
    from bridge.carrier.directory import LEADS_ELSEWHERE  # noqa: PLC0415 - only a task needs it

    try:
        with bag.open() as root:
            return root.exists("carrier.sig")
    except OSError as error:
        return error.errno in LEADS_ELSEWHERE


def _unasked() -> list[list[Path]]:
    """The bags of each bundle that waits in the airlock and that no person has let in."""
    folder = import_state() / "waiting"
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    return [sorted(place.iterdir()) for place in places if not _has_people(place.name)]


def _has_people(bundle: str) -> bool:
    """Whether people have let it in; then it waits for something else."""
    result = stored(zone(), "import", bundle)
    return bool(result and result.summary.get("decided_by"))


def _key(bags: Sequence[BagPath]) -> str:
    """What lies there, by names, sizes and times: anything that changes is looked at again."""
    from veen.digest import h  # noqa: PLC0415 - only a task needs it

    files = sorted((file for bag in bags for file in _files(bag)), key=lambda item: item[0])
    listed = [[str(path), state.st_size, state.st_mtime_ns] for path, state in files]
    return h(json.dumps(listed or [str(bag) for bag in bags]).encode()).hex()[:32]


def _files(bag: BagPath) -> Iterator[tuple[Path, os.stat_result]]:
    """Nothing that a name leads to is followed, and no carrier keeps another from being judged."""
    with contextlib.suppress(OSError), bag.open() as root:
        yield from _entries(root)
        with root.directory("data") as data:
            yield from _entries(data)


def _entries(directory: Directory) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(directory.fd) as result:
        for name in sorted(item.name for item in islice(result, _MOST)):
            yield directory.path / name, directory.status(name)


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


def verify_words(context: Context) -> Sequence[str]:
    bags = [bag for item in _came(context) for bag in item["bags"]]
    transcript = workplace(zone(), context) / "transcript.txt"
    return bridge_verify(bags, ["--config", str(zone().file)], transcript)


def found_valid(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    """Each carrier by its bundle; what went in before needs nobody's word again."""
    rows = [{**row, "id": _name(row), "state": _judged(row)} for row in answer.document["carriers"]]
    values = list({row["id"]: row for row in rows if row["state"] == VERIFIED}.values())
    values.sort(key=lambda item: (item["stream"], item["from_seq"], item["id"]))
    obstructed = [row for row in rows if row["state"] == OBSTRUCTED]
    refused = sum(row["state"] == REFUSED for row in rows)
    question = questions.compose(values, obstructed, refused)
    for item in rows:
        if item["state"] == VERIFIED and item["id"] not in question.bundles:
            item["state"] = LATER
    write_run_file(context, questions.FILE, questions.document(question))
    write_run_file(context, "verified", rows)
    return [
        DagArtefact(
            kind="import",
            id=row["id"],
            state=row["state"],
            path=row["bags"][0],
            summary=_describe(row),
        )
        for row in rows
        if row["state"] != DECIDED
    ]


def asked_about(context: Context) -> tuple[str, ...]:
    """The bundles that people have to decide about."""
    return questions.asked(context).bundles


def description(context: Context) -> str:
    """What people are shown: every bundle that they decide about."""
    return questions.asked(context).body


def import_words(context: Context) -> Sequence[str]:
    if not _came(context):
        raise NothingToDo("no carrier came")
    bundles, result = asked_about(context), _decision(context)
    write_run_file(context, "decision", asdict(result))
    people = ", ".join(result.people) or ("nobody" if bundles else "nobody was asked")
    words = ["bridge", "import", "--config", str(zone().file), "--operator", people]
    for bag in _on_medium(context, (*_UNTOUCHED, VERIFIED) if result.refused else _UNTOUCHED):
        words += ["--medium", bag]
    if result.refused:
        _LOG.error("the approval is refused: %s", result.refused)
        for bundle in bundles:
            words += ["--unapproved", bundle]
        why = f"{result.refused} (Airflow's run {context['run_id']})"
        return [*words, "--reason", why, *_only(_approved_before())]
    _LOG.info("%s: %s", "rejected by" if result.is_rejected else "approved by", people)
    if result.is_rejected and bundles:
        for bundle in bundles:
            words += ["--reject", bundle]
        why = f"Airflow's run {context['run_id']}"
        return [*words, "--reason", why, *_only(_approved_before())]
    return [*words, *_only([*bundles, *_approved_before()])]


def let_in(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    result, bundles = Decision(**read_run_file(context, "decision")), asked_about(context)
    made = [
        # Whoever was asked about other bundles has said nothing about this one.
        _became(row, result.said if _name(row) in bundles else _decided_by(_name(row)))
        for row in answer.document["carriers"]
        if not _was_here(row)
    ]
    write_run_file(
        context, "imported", [{"id": artefact.id, "state": artefact.state} for artefact in made]
    )
    if result.refused:
        raise Alarm("approval", f"nothing was let in: {result.refused}.", made)
    left = {bag for row in _rows(context, *_UNTOUCHED) for bag in row["bags"]}
    for item in _came(context):
        if not left & set(item["bags"]) and not _is_open(item, answer):
            write_once(seen(item["key"]), json.dumps(item).encode())
    return made


def remaining(context: Context) -> Sequence[DagArtefact]:
    """Whether another run has to go on with what did not fit into this one or its question: then
    the task succeeds, and tells of a medium as if it had just come.
    """
    later, left = len(_rows(context, LATER)), int(read_run_file(context, LEFT) or 0)
    if not any(seen(item["key"]).exists() for item in _came(context)):
        # The next run would take up the same carriers again.
        left = 0
    if not later and not left:
        raise NothingToDo("every bundle was in the question")
    _LOG.info("the next run asks about %d more bundles and takes up %d carriers", later, left)
    return ()


def checkpoint_words(context: Context) -> Sequence[str]:
    if not _became_of(context, "imported", "heartbeat"):
        raise NothingToDo("nothing went in")
    return checkpoint_create(zone())


def receipt_words(context: Context) -> Sequence[Sequence[str]]:
    result = _became_of(context, "imported")
    if not result:
        raise NothingToDo("nothing went in that has a receipt")
    return [["bridge", "receipt", item, "--config", str(zone().file)] for item in result]


def shown(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    for line in answer.document["text"].splitlines():
        _LOG.info("%s", line)
    return ()


def judged(context: Context) -> Sequence[DagArtefact]:
    """A carrier that was refused fails the run; one that has to wait is told of."""
    became = _became_of(context, "imported", "heartbeat", "duplicate")
    refused = [
        item["id"]
        for name in ("verified", "imported")
        for item in read_run_file(context, name) or ()
        # What went in, from whichever of its copies, is not refused.
        if item["state"] in _BAD and item["id"] not in became
    ]
    if refused:
        names = ", ".join(sorted({item[:16] for item in refused}))
        raise Alarm(refused[0][:16], f"carriers were refused and are in quarantine: {names}.")
    if held_back := _rows(context, OBSTRUCTED):
        why = "; ".join(f"{item['id'][:16]}: {item['obstacle']}" for item in held_back[:_MOST_TOLD])
        raise Alarm("obstacle", f"{len(held_back)} valid bundles cannot go in as things are: {why}")
    if left := _became_of(context, *_LEFT):
        tell(context, f"{len(left)} bundles wait: for a gap to close, or for signatures")
    return ()


def _was_here(row: Mapping[str, Any]) -> bool:
    """A bundle that an earlier run has let in, and told of."""
    return row["state"] == "duplicate" and known(zone(), "import", _name(row)) == "imported"


def _became(row: Mapping[str, Any], people: Sequence[str]) -> DagArtefact:
    """A bundle that a first, killed try has let in is a duplicate for the second."""
    receipt = import_state() / "receipts" / f"{row['bundle_id']}.svg"
    state = str(row["state"])
    if state == "duplicate" and receipt.exists():
        state = "imported"
    path = str(receipt) if receipt.exists() else None
    detail = {**_describe(row), "decided_by": list(people), "detail": row["detail"]}
    return DagArtefact(kind="import", id=_name(row), state=state, path=path, summary=detail)


def _is_decided(name: str) -> bool:
    """It is in, or people have let it in and it waits for something else."""
    state = known(zone(), "import", name)
    return state == "imported" or (state in _LEFT and bool(_decided_by(name)))


def _decided_by(name: str) -> list[str]:
    result = stored(zone(), "import", name)
    return list(result.summary.get("decided_by") or ()) if result else []


def _became_of(context: Context, *states: str) -> list[str]:
    made = read_run_file(context, "imported") or ()
    return [item["id"] for item in made if item["state"] in states]


def _is_open(came: Mapping[str, Any], answer: CommandAnswer) -> bool:
    """Volumes of it are still to come."""
    names = {Path(item).name for item in came["bags"]}
    open_ones = {row["name"] for row in answer.document["carriers"] if row["state"] == "incomplete"}
    return bool(names & open_ones)


def _approved_before() -> list[str]:
    """Bundles that people have let in and that still wait for something else."""
    from zone.artefacts import FOLDER, decode  # noqa: PLC0415 - only a task needs them

    folder = zone().folder / FOLDER / "import"
    result = [decode(file) for file in sorted(folder.glob("*.json"))]
    return [item.id for item in result if item.state in _LEFT and item.summary.get("decided_by")]


def _only(bundles: Sequence[str]) -> Iterator[str]:
    for bundle in bundles or ("none",):
        yield from ("--only", bundle)


def _came(context: Context) -> list[dict[str, Any]]:
    return list(read_run_file(context, "carriers") or ())


def _rows(context: Context, *states: str) -> list[dict[str, Any]]:
    """The carriers that ``verify`` left in one of these states."""
    return [item for item in read_run_file(context, "verified") or () if item["state"] in states]


def _on_medium(context: Context, without: Sequence[str]) -> list[str]:
    """The bags to fetch. What lies in the airlock is taken from there."""
    left = {bag for row in _rows(context, *without) for bag in row["bags"]}
    bags = [bag for item in _came(context) for bag in item["bags"] if bag not in left]
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
    from bridge.carrier.directory import carrier_name  # noqa: PLC0415 - only a task needs it

    if row["bundle_id"]:
        return str(row["bundle_id"])
    # A name on a medium may be any bytes; what cannot be the name of a file here is a hash.
    name = carrier_name(row.get("name") or Path(row["bags"][0]).name)
    return name if name.startswith("carrier-") else f"carrier-{name}"


def _describe(row: Mapping[str, Any]) -> dict[str, Any]:
    detail = {
        name: row.get(name) for name in ("stream", "from_seq", "to_seq", "reason", "imported")
    }
    return detail | ({"obstacle": row["obstacle"]} if row.get("obstacle") else {})
