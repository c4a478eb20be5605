"""Artefacts of DAG runs, a page at a time, and the end times of runs.

Only what is shown is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from airflow.models.dagrun import DagRun
from sqlalchemy import select
from sqlalchemy.orm import Session
from veen_page_services import reading

from zone.artefacts import FOLDER, KINDS, Artefact, decode, newest, unresolved_alarms

PAGE: Final = 25
SHORT: Final = 6
"""How many are on the first page."""
OF_RUN: Final = 100
"""How many artefacts before the end of a run are searched for its own."""
_NAME: Final = re.compile(r"[0-9]{20}-[A-Za-z0-9._:+=@-]{1,181}")
_LARGEST: Final = 16 << 20
_GIVEN: Final = ("reports", "runs", "import/receipts")
"""The directories of a zone whose files are served; keys and passwords are in others."""
MayRead = Callable[[str], bool]
"""Whether the user may see the runs of a DAG."""
_LATER: Final = 253_402_300_799_000
"""The latest possible date, in milliseconds, for runs that have not ended."""


@dataclass(frozen=True, slots=True)
class ArtefactPage:
    """A page of artefacts; ``next_before`` is the cursor of the next page, if there is one."""

    kind: str
    rows: tuple[Artefact, ...]
    next_before: str | None


def page(
    folder: Path, kind: str, limit: int, may_read: MayRead, before: str | None = None
) -> ArtefactPage:
    with reading(f"the list of {kind}"):
        artefacts = newest(folder, kind, limit + 1, before)
    shown = artefacts[:limit]
    rows = tuple(item for item in shown if may_read(item.dag_id))
    return ArtefactPage(kind, rows, shown[-1].name if len(artefacts) > limit else None)


def is_place(before: str) -> bool:
    """Whether a cursor is valid: the name of an artefact."""
    return _NAME.fullmatch(before) is not None


def by_id(folder: Path, kind: str, ids: Iterable[str]) -> Mapping[str, Artefact]:
    """The artefacts of these ids; only their names are searched."""
    expected, place = set(ids), folder / FOLDER / kind
    if not expected or not place.is_dir():
        return {}
    with reading(f"the list of {kind}"), os.scandir(place) as entries:
        names = [entry.name for entry in entries if entry.name[21:-5] in expected]
        artefacts = [decode(place / name) for name in names if is_place(name.removesuffix(".json"))]
    return {item.id: item for item in artefacts}


def seen_by_id(
    folder: Path, kind: str, ids: Iterable[str], may_read: MayRead
) -> Mapping[str, Artefact]:
    """The same as ``by_id``, without what the user may not see."""
    artefacts = by_id(folder, kind, ids)
    return {name: artefact for name, artefact in artefacts.items() if may_read(artefact.dag_id)}


def alarms(folder: Path, may_read: MayRead) -> ArtefactPage:
    """Unresolved alarms, newest first; ``next_before`` is set if there are more."""
    with reading("the list of alarms"):
        unresolved = unresolved_alarms(folder, PAGE + 1)
    shown = unresolved[:PAGE]
    rows = tuple(item for item in shown if may_read(item.dag_id))
    return ArtefactPage("alarm", rows, shown[-1].name if len(unresolved) > PAGE else None)


@dataclass(frozen=True, slots=True)
class OfRun:
    """Artefacts ``made`` by the run, and those of other runs that it ``looked_at``, oldest
    first.
    """

    made: tuple[Artefact, ...] = ()
    looked_at: tuple[Artefact, ...] = ()


def of_run(folder: Path, dag_id: str, run_id: str, ended_ms: int) -> OfRun:
    """The artefacts of a run, of any kind, and those that it reported again."""
    with reading("what the run made"):
        matching = [
            item for kind in KINDS for item in newest(folder, kind, OF_RUN, f"{ended_ms + 1:020d}")
        ]
    matching.sort(key=lambda item: item.made_at)
    run = (dag_id, run_id)
    return OfRun(
        made=tuple(item for item in matching if (item.dag_id, item.run_id) == run),
        looked_at=tuple(
            item for item in matching if item.seen and (item.seen.dag_id, item.seen.run_id) == run
        ),
    )


def file_of(folder: Path, artefact: Artefact) -> Path | None:
    """The file of an artefact, if it exists, may be served and is not too large."""
    return inside(folder, Path(artefact.path)) if artefact.path else None


def where(folder: Path, artefact: Artefact) -> str | None:
    """The path of its file, relative to the zone's directory if it is inside."""
    if artefact.path is None:
        return None
    path = Path(artefact.path)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else artefact.path


def picture_of(folder: Path, artefact: Artefact) -> Path | None:
    """The picture beside the report of a reconciliation."""
    if artefact.kind != "reconcile" or not artefact.path:
        return None
    return inside(folder, Path(artefact.path).with_suffix(".svg"))


def inside(folder: Path, path: Path) -> Path | None:
    file = (folder / path).resolve()
    given = [(folder / name).resolve() for name in _GIVEN]
    if not any(file.is_relative_to(item) for item in given) or not file.is_file():
        return None
    return file if file.stat().st_size <= _LARGEST else None


def ended_ms(session: Session, dag_id: str, run_id: str) -> int:
    """The end of a run in milliseconds, before which it made its artefacts."""
    expected = select(DagRun.end_date).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    end = session.scalar(expected)
    return int(end.timestamp() * 1000) + 1 if end else _LATER
