"""The import DAG: undecided carriers on a medium or in the inbox, their approval, their outcomes.

Nothing here is read from XCom, which anybody who may write to the DAG may write.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veen_airflow import approval as questions
from veen_airflow.alerts import Alarm, notify
from veen_airflow.approval import Decision, decide, recorded, traces
from veen_airflow.artefacts import DagArtefact, NothingToDo, artefact_state, load_artefact
from veen_airflow.commands import CommandAnswer, bridge_verify, checkpoint_create
from veen_airflow.results import read_run_file, write_run_file
from veen_airflow.zone import run_directory, write_once, zone

if TYPE_CHECKING:
    from bridge.carrier.directory import BagPath, Directory

Context = Mapping[str, Any]
_MOST: Final = 2_000
"""The number of entries of a bag that are read; a bag with more is refused by verification."""
MAX_ARGV_BYTES: Final = 512 << 10
"""The size limit of the paths in a command line; the system limits arguments to 2 MiB."""
_PER_PATH: Final = 32
"""The overhead of a path in a command line: its option, and pointers."""
_LOG = logging.getLogger(__name__)
LEFT: Final = "left"
"""The run file with the number of carriers that this run did not process."""
_MOST_LISTED: Final = 3
_LEFT: Final = ("waiting", "blocked")


def undecided(context: Context) -> list[dict[str, Any]]:
    """The carriers on the medium and in the inbox that no run has completed.

    If the medium cannot be listed, the inbox is processed nevertheless.
    """
    from bridge.carrier.medium import NoBags, carriers  # noqa: PLC0415 - only a task needs them
    from veen.errors import VeenError  # noqa: PLC0415

    medium = Path(context["params"]["medium"])
    places = [[medium] if medium.is_dir() else [], *([path] for path in _inbox()), *_unasked()]
    by_place: list[tuple[BagPath, ...]] = []
    for place in filter(None, places):
        try:
            by_place += carriers(place)
        except NoBags:
            continue
        except (OSError, VeenError) as error:
            _LOG.warning("%s is skipped: %s", place[0], error)
    signed = [bags for bags in by_place if all(map(_is_signed, bags))]
    carriers_by_key = [{"key": _key(bags), "bags": [str(bag) for bag in bags]} for bags in signed]
    return [bags for bags in carriers_by_key if not seen(str(bags["key"])).exists()]


def batch(waiting: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The carriers of one run, as many as fit into a command line.

    Bags signed by a trusted exporter come first, and carriers that have one: anybody can put many
    others beside them. Of a carrier with too many bags the last are left out.
    """
    is_signed = _signed_by_trusted()
    ranked = [
        {**carrier, "bags": sorted(carrier["bags"], key=lambda bag: not is_signed(bag))}
        for carrier in waiting
    ]
    ranked.sort(key=lambda carrier: not is_signed(carrier["bags"][0]))
    taken, remaining = list[dict[str, Any]](), MAX_ARGV_BYTES
    for carrier in ranked:
        sizes = accumulate(len(os.fsencode(bag)) + _PER_PATH for bag in carrier["bags"])
        fitting = [
            bag for bag, size in zip(carrier["bags"], sizes, strict=True) if size <= remaining
        ]
        if taken and len(fitting) < len(carrier["bags"]):
            break
        taken.append({**carrier, "bags": fitting})
        remaining -= sum(len(os.fsencode(bag)) + _PER_PATH for bag in fitting)
    return taken


def _signed_by_trusted() -> Callable[[str], bool]:
    """A check whether a trusted exporter has signed a bag, from its tag files only, and cached."""
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
    """The mark of a carrier that a run has completed."""
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
    """Whether a bag is finished; true for a link out of the medium, so that it gets refused."""
    from bridge.carrier.directory import LEADS_ELSEWHERE  # noqa: PLC0415 - only a task needs it

    try:
        with bag.open() as root:
            return root.exists("carrier.sig")
    except OSError as error:
        return error.errno in LEADS_ELSEWHERE


def _unasked() -> list[list[Path]]:
    """The bags of each held bundle that people have not approved."""
    folder = import_state() / "waiting"
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    return [sorted(place.iterdir()) for place in places if not _has_people(place.name)]


def _has_people(bundle: str) -> bool:
    """Whether people have approved the bundle, which then waits for something else."""
    artefact = load_artefact(zone(), "import", bundle)
    return bool(artefact and artefact.summary.get("decided_by"))


def _key(bags: Sequence[BagPath]) -> str:
    """A fingerprint of names, sizes and times: a carrier that changes is processed again."""
    from veen.digest import h  # noqa: PLC0415 - only a task needs it

    files = sorted((file for bag in bags for file in _files(bag)), key=lambda item: item[0])
    listed = [[str(path), state.st_size, state.st_mtime_ns] for path, state in files]
    return h(json.dumps(listed or [str(bag) for bag in bags]).encode()).hex()[:32]


def _files(bag: BagPath) -> Iterator[tuple[Path, os.stat_result]]:
    """The files of a bag, without following links; an unreadable bag has none."""
    with contextlib.suppress(OSError), bag.open() as root:
        yield from _entries(root)
        with root.directory("data") as data:
            yield from _entries(data)


def _entries(directory: Directory) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(directory.fd) as entries:
        for name in sorted(entry.name for entry in islice(entries, _MOST)):
            yield directory.path / name, directory.status(name)


VERIFIED, LATER, OBSTRUCTED, HEARTBEAT, REFUSED, DECIDED = (
    "verified", "later", "obstructed", "heartbeat", "refused", "decided",
)  # fmt: skip
"""The states of a carrier after ``verify``. People are asked about VERIFIED carriers; LATER did not
fit into the question, and OBSTRUCTED are valid and cannot be imported now."""


_UNTOUCHED: Final = (LATER, OBSTRUCTED)
"""States of carriers that this run does not change, for a later run."""

_BAD: Final = (REFUSED, "quarantined", "frozen")


def verify_argv(context: Context) -> Sequence[str]:
    bags = [bag for carrier in _came(context) for bag in carrier["bags"]]
    transcript = run_directory(zone(), context) / "transcript.txt"
    return bridge_verify(bags, ["--config", str(zone().file)], transcript)


def verified_artefacts(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    """The verified carriers, and the question about those that are not decided yet."""
    rows = [{**row, "id": _name(row), "state": _judged(row)} for row in answer.document["carriers"]]
    verified = list({row["id"]: row for row in rows if row["state"] == VERIFIED}.values())
    verified.sort(key=lambda row: (row["stream"], row["from_seq"], row["id"]))
    obstructed = [row for row in rows if row["state"] == OBSTRUCTED]
    refused = sum(row["state"] == REFUSED for row in rows)
    question = questions.compose(verified, obstructed, refused)
    for row in rows:
        if row["state"] == VERIFIED and row["id"] not in question.bundles:
            row["state"] = LATER
    write_run_file(context, questions.FILE, questions.document(question))
    write_run_file(context, "verified", rows)
    return [
        DagArtefact(
            kind="import",
            id=row["id"],
            state=row["state"],
            path=row["bags"][0],
            summary=_summary(row),
        )
        for row in rows
        if row["state"] != DECIDED
    ]


def asked_about(context: Context) -> tuple[str, ...]:
    """The bundles of the question."""
    return questions.asked(context).bundles


def description(context: Context) -> str:
    """The text of the question, which lists every bundle."""
    return questions.asked(context).body


def import_argv(context: Context) -> Sequence[str]:
    """The command of the task: what people decided is read from Airflow's own record."""
    if not _came(context):
        raise NothingToDo("no carrier arrived")
    return decided_argv(context, _decision(context))


def decided_argv(context: Context, decision: Decision) -> Sequence[str]:
    """The command that imports, rejects or reports the verified bundles, as people decided."""
    bundles = asked_about(context)
    write_run_file(context, "decision", asdict(decision))
    people = ", ".join(decision.people) or ("nobody" if bundles else "nobody was asked")
    argv = ["bridge", "import", "--config", str(zone().file), "--operator", people]
    for bag in _on_medium(context, (*_UNTOUCHED, VERIFIED) if decision.refused else _UNTOUCHED):
        argv += ["--medium", bag]
    if decision.refused:
        _LOG.error("the approval is refused: %s", decision.refused)
        for bundle in bundles:
            argv += ["--unapproved", bundle]
        why = f"{decision.refused} (Airflow's run {context['run_id']})"
        return [*argv, "--reason", why, *_only(_approved_before())]
    _LOG.info("%s: %s", "rejected by" if decision.is_rejected else "approved by", people)
    if decision.is_rejected and bundles:
        for bundle in bundles:
            argv += ["--reject", bundle]
        why = f"Airflow's run {context['run_id']}"
        return [*argv, "--reason", why, *_only(_approved_before())]
    return [*argv, *_only([*bundles, *_approved_before()])]


def let_in(answer: CommandAnswer, context: Context) -> Sequence[DagArtefact]:
    decision, bundles = Decision(**read_run_file(context, "decision")), asked_about(context)
    artefacts = [
        # A decision about other bundles does not apply to this one.
        _became(row, decision.said if _name(row) in bundles else _decided_by(_name(row)))
        for row in answer.document["carriers"]
        if not _was_here(row)
    ]
    write_run_file(
        context,
        "imported",
        [{"id": artefact.id, "state": artefact.state} for artefact in artefacts],
    )
    if decision.refused:
        raise Alarm("approval", f"nothing was imported: {decision.refused}.", artefacts)
    left = {bag for row in _rows(context, *_UNTOUCHED) for bag in row["bags"]}
    for carrier in _came(context):
        if not left & set(carrier["bags"]) and not _is_open(carrier, answer):
            write_once(seen(carrier["key"]), json.dumps(carrier).encode())
    return artefacts


def remaining(context: Context) -> Sequence[DagArtefact]:
    """Succeed if another run has to process what did not fit into this run or its question, which
    triggers the DAG as a new medium does.
    """
    later, left = len(_rows(context, LATER)), int(read_run_file(context, LEFT) or 0)
    if not any(seen(carrier["key"]).exists() for carrier in _came(context)):
        # The next run would process the same carriers again.
        left = 0
    if not later and not left:
        raise NothingToDo("every bundle was in the request for approval")
    _LOG.info("the next run asks about %d more bundles and handles %d carriers", later, left)
    return ()


def checkpoint_argv(context: Context) -> Sequence[str]:
    if not _became_of(context, "imported", "heartbeat"):
        raise NothingToDo("nothing was imported")
    return checkpoint_create(zone())


def receipt_argv(context: Context) -> Sequence[Sequence[str]]:
    bundles = _became_of(context, "imported")
    if not bundles:
        raise NothingToDo("nothing with a receipt was imported")
    return [["bridge", "receipt", bundle, "--config", str(zone().file)] for bundle in bundles]


def log_receipt(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    for line in answer.document["text"].splitlines():
        _LOG.info("%s", line)
    return ()


def judged(context: Context) -> Sequence[DagArtefact]:
    """Fail the run for refused carriers, and notify people of waiting ones."""
    became = _became_of(context, "imported", "heartbeat", "duplicate")
    refused = [
        row["id"]
        for name in ("verified", "imported")
        for row in read_run_file(context, name) or ()
        # A bundle that was imported from any of its copies is not refused.
        if row["state"] in _BAD and row["id"] not in became
    ]
    if refused:
        names = ", ".join(sorted({row[:16] for row in refused}))
        raise Alarm(refused[0][:16], f"carriers were refused and are in quarantine: {names}.")
    if held_back := _rows(context, OBSTRUCTED):
        why = "; ".join(f"{row['id'][:16]}: {row['obstacle']}" for row in held_back[:_MOST_LISTED])
        raise Alarm("obstacle", f"{len(held_back)} valid bundles cannot be imported: {why}")
    if left := _became_of(context, *_LEFT):
        notify(context, f"{len(left)} bundles wait: for a gap to close, or for signatures")
    return ()


def _was_here(row: Mapping[str, Any]) -> bool:
    """Whether an earlier run has imported the bundle, and reported it."""
    return (
        row["state"] == "duplicate" and artefact_state(zone(), "import", _name(row)) == "imported"
    )


def _became(row: Mapping[str, Any], people: Sequence[str]) -> DagArtefact:
    """The artefact of an outcome. A duplicate may have been imported by a first, killed try."""
    receipt = import_state() / "receipts" / f"{row['bundle_id']}.svg"
    state = str(row["state"])
    if state == "duplicate" and receipt.exists():
        state = "imported"
    path = str(receipt) if receipt.exists() else None
    detail = {**_summary(row), "decided_by": list(people), "detail": row["detail"]}
    return DagArtefact(kind="import", id=_name(row), state=state, path=path, summary=detail)


def _is_decided(name: str) -> bool:
    """Whether it is imported, or is approved and waits for something else."""
    state = artefact_state(zone(), "import", name)
    return state == "imported" or (state in _LEFT and bool(_decided_by(name)))


def _decided_by(name: str) -> list[str]:
    artefact = load_artefact(zone(), "import", name)
    return list(artefact.summary.get("decided_by") or ()) if artefact else []


def _became_of(context: Context, *states: str) -> list[str]:
    outcomes = read_run_file(context, "imported") or ()
    return [outcome["id"] for outcome in outcomes if outcome["state"] in states]


def _is_open(came: Mapping[str, Any], answer: CommandAnswer) -> bool:
    """Whether volumes of the carrier are missing."""
    names = {Path(bag).name for bag in came["bags"]}
    open_ones = {row["name"] for row in answer.document["carriers"] if row["state"] == "incomplete"}
    return bool(names & open_ones)


def _approved_before() -> list[str]:
    """Bundles that people have approved and that still wait for something else."""
    from zone.artefacts import FOLDER, decode  # noqa: PLC0415 - only a task needs them

    folder = zone().folder / FOLDER / "import"
    artefacts = [decode(file) for file in sorted(folder.glob("*.json"))]
    return [
        artefact.id
        for artefact in artefacts
        if artefact.state in _LEFT and artefact.summary.get("decided_by")
    ]


def _only(bundles: Sequence[str]) -> Iterator[str]:
    for bundle in bundles or ("none",):
        yield from ("--only", bundle)


def _came(context: Context) -> list[dict[str, Any]]:
    return list(read_run_file(context, "carriers") or ())


def _rows(context: Context, *states: str) -> list[dict[str, Any]]:
    """The carriers in one of these states after ``verify``."""
    return [row for row in read_run_file(context, "verified") or () if row["state"] in states]


def _on_medium(context: Context, without: Sequence[str]) -> list[str]:
    """The bags to fetch from media; those in the import directory are not fetched."""
    left = {bag for row in _rows(context, *without) for bag in row["bags"]}
    bags = [bag for carrier in _came(context) for bag in carrier["bags"] if bag not in left]
    return [bag for bag in bags if not Path(bag).is_relative_to(import_state())]


def _decision(context: Context) -> Decision:
    """The decision of people; empty if nobody was asked."""
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
        _LOG.info("bundle %s has a decision already", row["bundle_id"])
        return DECIDED
    return OBSTRUCTED if row.get("obstacle") else VERIFIED


def _name(row: Mapping[str, Any]) -> str:
    from bridge.carrier.directory import carrier_name  # noqa: PLC0415 - only a task needs it

    if row["bundle_id"]:
        return str(row["bundle_id"])
    # A name on a medium may be any bytes; an unsuitable file name is replaced by its hash.
    name = carrier_name(row.get("name") or Path(row["bags"][0]).name)
    return name if name.startswith("carrier-") else f"carrier-{name}"


def _summary(row: Mapping[str, Any]) -> dict[str, Any]:
    detail = {
        name: row.get(name) for name in ("stream", "from_seq", "to_seq", "reason", "imported")
    }
    return detail | ({"obstacle": row["obstacle"]} if row.get("obstacle") else {})
