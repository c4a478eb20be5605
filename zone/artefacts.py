"""Artefacts: what the runs of a zone's DAGs made, each described by a small file."""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from veen.errors import LATER_RELEASE, VeenError
from veen.system import durable, filelock

FOLDER: Final = "artefacts"
KINDS: Final = (
    "checkpoint", "anchor", "archive", "audit", "fold", "query",
    "export", "import", "reconcile", "retention", "alarm",
)  # fmt: skip
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+=@-]{0,180}")
_NAME: Final = re.compile(r"([0-9]{20})-(.+)\.json")
_MOST_MS: Final = 10**20 - 1
_TEXTS: Final = ("kind", "id", "dag_id", "run_id", "task_id", "state")
_SHAPE: Final = dict.fromkeys(_TEXTS, str) | {"made_at": int, "summary": dict}
_SHAPES: Final = (_SHAPE | {"path": str}, _SHAPE | {"path": type(None)})
_SEEN: Final = {"dag_id": str, "run_id": str, "seen_at": int}
_BEGUN: Final = ("signed", "pushed")
"""Initial states; an artefact in a later state does not return to them."""
OVER: Final = "over"
"""The state of an alarm that is resolved."""
_VERSION: Final = 1
"""The version of a file; the first files had none, and the same fields."""
_UNRESOLVED: Final = "unresolved"
_EARLIER_MARKS: Final = "standing"
"""The directory of marks of an earlier version; renamed by the next write."""


class BadArtefact(VeenError):
    """A file that does not describe an artefact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A later run that reported the artefact again; ``seen_at`` is in milliseconds."""

    dag_id: str
    run_id: str
    seen_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """The description of what a run made. ``id`` is that of the thing itself, so that a second run
    reports the same artefact.

    ``made_at`` is in milliseconds; ``path`` is set if the artefact is a file. ``summary`` has ids
    and counts, never payloads. The run is that which made it; ``seen`` is the last other run that
    reported it.
    """

    kind: str
    id: str
    made_at: int
    dag_id: str
    run_id: str
    task_id: str
    state: str
    summary: Mapping[str, Any]
    path: str | None = None
    seen: Seen | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadArtefact(f"kind {self.kind!r}: expected one of {', '.join(KINDS)}")
        if not _ID.fullmatch(self.id):
            raise BadArtefact(
                f"id {self.id!r}: expected up to 181 of A-Z, a-z, 0-9 and . _ : + = @ -, since it "
                "becomes a file name"
            )
        if not 0 <= self.made_at <= _MOST_MS:
            raise BadArtefact(f"made_at {self.made_at}: expected milliseconds since 1970")

    @property
    def name(self) -> str:
        """The file name without suffix, which sorts by time; the last of a page is the next
        cursor.
        """
        return f"{self.made_at:020d}-{self.id}"

    def merged_with(self, by: Artefact) -> Artefact:
        """The artefact updated by a later report; who made it, and when, does not change."""
        state = self.state if by.state in _BEGUN and self.state not in _BEGUN else by.state
        seen = Seen(dag_id=by.dag_id, run_id=by.run_id, seen_at=by.made_at)
        is_own = (by.dag_id, by.run_id) == (self.dag_id, self.run_id)
        return replace(
            self,
            state=state,
            summary=by.summary,
            path=by.path,
            seen=self.seen if is_own else seen,
        )


def write(zone_folder: Path, artefact: Artefact) -> Path:
    """Write an artefact atomically. Each id has one file, which names the run that made it; a later
    report updates its state, its summary and ``seen``."""
    folder = zone_folder / FOLDER / artefact.kind
    durable.make_directory(folder)
    # Runs may report the same artefact at the same time.
    with filelock.locked(folder / ".lock"):
        known = _known(folder, artefact.id)
        stored = artefact if known is None else decode(known).merged_with(artefact)
        _migrate_marks(folder)
        if stored.kind == "alarm" and stored.state != OVER:
            _mark(folder, stored)
        target, data = folder / f"{stored.name}.json", _encode(stored)
        if known is None or target.read_bytes() != data:
            durable.write(target, data)
        if stored.kind == "alarm" and stored.state == OVER:
            for marks in (_UNRESOLVED, _EARLIER_MARKS):
                (folder / marks / stored.name).unlink(missing_ok=True)
    return target


def unresolved_alarms(zone_folder: Path, limit: int) -> tuple[Artefact, ...]:
    """The newest unresolved alarms; resolved alarms are not read."""
    folder = zone_folder / FOLDER / "alarm"
    # In this order, since a write may rename the first to the second meanwhile.
    names = {*_marks(folder / _EARLIER_MARKS), *_marks(folder / _UNRESOLVED)}
    files = [folder / f"{name}.json" for name in heapq.nlargest(limit, names)]
    # A mark is written before its alarm and removed after it: a write may be interrupted between.
    alarms = [decode(file) for file in files if file.exists()]
    return tuple(alarm for alarm in alarms if alarm.state != OVER)


def newest(
    zone_folder: Path, kind: str, limit: int, before: str | None = None
) -> tuple[Artefact, ...]:
    """The newest artefacts of a kind, newest first; with ``before``, those older than that name.

    Only names are listed; only what is returned is read.
    """
    folder = zone_folder / FOLDER / kind
    names = (name for name in _names(folder) if before is None or name < f"{before}.json")
    return tuple(decode(folder / name) for name in heapq.nlargest(limit, names))


def decode(file: Path) -> Artefact:
    try:
        document = json.loads(file.read_bytes())
    except ValueError as error:
        raise BadArtefact(f"{file}: expected JSON: {error}; remove it") from error
    if type(document) is dict and document.pop("version", _VERSION) != _VERSION:
        raise BadArtefact(f"{file}: expected version {_VERSION}, got another one: {LATER_RELEASE}")
    seen = _seen(file, document.pop("seen", None)) if type(document) is dict else None
    if type(document) is not dict or {key: type(document[key]) for key in document} not in _SHAPES:
        raise BadArtefact(f"{file}: expected the fields of an artefact, got others; remove it")
    artefact = Artefact(**document, seen=seen)
    if f"{artefact.name}.json" != file.name:
        raise BadArtefact(
            f"{file}: expected the artefact of its name, got {artefact.name}; remove it"
        )
    return artefact


def _seen(file: Path, value: Any) -> Seen | None:
    if value is None:
        return None
    if type(value) is not dict or {key: type(value[key]) for key in value} != _SEEN:
        raise BadArtefact(f"{file}: expected a run and its time as seen; remove it")
    return Seen(**value)


def _encode(artefact: Artefact) -> bytes:
    document: dict[str, Any] = {"version": _VERSION}
    document |= {field.name: getattr(artefact, field.name) for field in fields(artefact)}
    document["summary"] = dict(artefact.summary)
    seen = document.pop("seen")
    if seen is not None:
        document["seen"] = asdict(seen)
    return json.dumps(document, sort_keys=True, indent=1).encode() + b"\n"


def _known(folder: Path, artefact_id: str) -> Path | None:
    ending = f"-{artefact_id}.json"
    for name in _names(folder):
        if name.endswith(ending) and len(name) == 20 + len(ending):
            return folder / name
    return None


def _mark(folder: Path, alarm: Artefact) -> None:
    durable.make_directory(folder / _UNRESOLVED)
    (folder / _UNRESOLVED / alarm.name).touch(mode=durable.FILE_MODE)
    durable.sync_directory(folder / _UNRESOLVED)


def _marks(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except FileNotFoundError:
        return []


def _migrate_marks(folder: Path) -> None:
    if (folder / _EARLIER_MARKS).is_dir() and not (folder / _UNRESOLVED).exists():
        (folder / _EARLIER_MARKS).rename(folder / _UNRESOLVED)
        durable.sync_directory(folder)


def _names(folder: Path) -> Iterator[str]:
    if folder.is_dir():
        with os.scandir(folder) as entries:
            yield from (entry.name for entry in entries if _NAME.fullmatch(entry.name))
