"""What the runs of the DAGs have made, a page at a time; only what is shown is read.

When a run ended, as Airflow keeps it.
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

from zone.artefacts import FOLDER, KINDS, Artefact, decode, newest, standing

PAGE: Final = 25
SHORT: Final = 6
"""How many stand on the first page."""
OF_RUN: Final = 100
"""Among so many before the end of a run, what it made is looked for."""
_NAME: Final = re.compile(r"[0-9]{20}-[A-Za-z0-9._:+=@-]{1,181}")
_LARGEST: Final = 16 << 20
_GIVEN: Final = ("reports", "runs", "import/receipts")
"""The folders of a zone of which files are given out; keys and passwords lie in others."""
MayRead = Callable[[str], bool]
"""Whether the one who asks may see the runs of a DAG."""


@dataclass(frozen=True, slots=True)
class ArtefactPage:
    """``next_before`` leads to the older ones, while there are any."""

    kind: str
    rows: tuple[Artefact, ...]
    next_before: str | None


def page(
    folder: Path, kind: str, limit: int, may_read: MayRead, before: str | None = None
) -> ArtefactPage:
    with reading(f"the list of {kind}"):
        result = newest(folder, kind, limit + 1, before)
    shown = result[:limit]
    rows = tuple(item for item in shown if may_read(item.dag_id))
    return ArtefactPage(kind, rows, shown[-1].name if len(result) > limit else None)


def is_place(before: str) -> bool:
    """Whether a page may begin there: the name of an artefact."""
    return _NAME.fullmatch(before) is not None


def by_id(folder: Path, kind: str, ids: Iterable[str]) -> Mapping[str, Artefact]:
    """Those of these ids that are known; names alone are looked through."""
    expected, place = set(ids), folder / FOLDER / kind
    if not expected or not place.is_dir():
        return {}
    with reading(f"the list of {kind}"), os.scandir(place) as entries:
        names = [entry.name for entry in entries if entry.name[21:-5] in expected]
        result = [decode(place / name) for name in names if is_place(name.removesuffix(".json"))]
    return {item.id: item for item in result}


def seen_by_id(
    folder: Path, kind: str, ids: Iterable[str], may_read: MayRead
) -> Mapping[str, Artefact]:
    """As ``by_id``, without what the one who asks may not see."""
    result = by_id(folder, kind, ids)
    return {name: artefact for name, artefact in result.items() if may_read(artefact.dag_id)}


def alarms(folder: Path, may_read: MayRead) -> ArtefactPage:
    """Those that stand, newest first; ``next_before`` is set where there are more."""
    with reading("the list of alarms"):
        result = standing(folder, PAGE + 1)
    shown = result[:PAGE]
    rows = tuple(item for item in shown if may_read(item.dag_id))
    return ArtefactPage("alarm", rows, shown[-1].name if len(result) > PAGE else None)


@dataclass(frozen=True, slots=True)
class OfRun:
    """``made`` by the run; ``looked_at`` was made by another, oldest first."""

    made: tuple[Artefact, ...] = ()
    looked_at: tuple[Artefact, ...] = ()


def of_run(folder: Path, dag_id: str, run_id: str, ended_ms: int) -> OfRun:
    """What one run made, of any kind, and what it has looked at again."""
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
    """The file that it names, where that is one, may be given out, and is not too large."""
    return inside(folder, Path(artefact.path)) if artefact.path else None


def where(folder: Path, artefact: Artefact) -> str | None:
    """Where it lies, from the zone's folder on if it is there."""
    if artefact.path is None:
        return None
    path = Path(artefact.path)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else artefact.path


def picture_of(folder: Path, artefact: Artefact) -> Path | None:
    """The picture that a reconciliation draws beside its report."""
    if artefact.kind != "reconcile" or not artefact.path:
        return None
    return inside(folder, Path(artefact.path).with_suffix(".svg"))


def inside(folder: Path, path: Path) -> Path | None:
    result = (folder / path).resolve()
    given = [(folder / name).resolve() for name in _GIVEN]
    if not any(result.is_relative_to(item) for item in given) or not result.is_file():
        return None
    return result if result.stat().st_size <= _LARGEST else None


_LATER: Final = 253_402_300_799_000
"""The last moment that a date can be, in milliseconds: for runs that have not ended."""


def ended_ms(session: Session, dag_id: str, run_id: str) -> int:
    """In milliseconds; what a run makes, it makes before."""
    expected = select(DagRun.end_date).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    result = session.scalar(expected)
    return int(result.timestamp() * 1000) + 1 if result else _LATER
