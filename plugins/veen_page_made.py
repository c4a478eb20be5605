"""What the runs of the DAGs have made, a page at a time; only what is shown is read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_page_zone import reading

from recorder.artefact import FOLDER, KINDS, Artefact, decode, newest, standing

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
class Page:
    """``next_before`` leads to the older ones, while there are any."""

    kind: str
    rows: tuple[Artefact, ...]
    next_before: str | None


def page(folder: Path, kind: str, limit: int, may_read: MayRead, before: str | None = None) -> Page:
    with reading(f"the list of {kind}"):
        found = newest(folder, kind, limit + 1, before)
    shown = found[:limit]
    rows = tuple(one for one in shown if may_read(one.dag_id))
    return Page(kind, rows, shown[-1].name if len(found) > limit else None)


def is_place(before: str) -> bool:
    """Whether a page may begin there: the name of an artefact."""
    return _NAME.fullmatch(before) is not None


def by_id(folder: Path, kind: str, ids: Iterable[str]) -> Mapping[str, Artefact]:
    """Those of these ids that are known; names alone are looked through."""
    wanted, place = set(ids), folder / FOLDER / kind
    if not wanted or not place.is_dir():
        return {}
    with reading(f"the list of {kind}"), os.scandir(place) as entries:
        names = [one.name for one in entries if one.name[21:-5] in wanted]
        found = [decode(place / name) for name in names if is_place(name.removesuffix(".json"))]
    return {one.id: one for one in found}


def seen_by_id(
    folder: Path, kind: str, ids: Iterable[str], may_read: MayRead
) -> Mapping[str, Artefact]:
    """As ``by_id``, without what the one who asks may not see."""
    found = by_id(folder, kind, ids)
    return {name: one for name, one in found.items() if may_read(one.dag_id)}


def alarms(folder: Path, may_read: MayRead) -> Page:
    """Those that stand, newest first; ``next_before`` is set where there are more."""
    with reading("the list of alarms"):
        found = standing(folder, PAGE + 1)
    shown = found[:PAGE]
    rows = tuple(one for one in shown if may_read(one.dag_id))
    return Page("alarm", rows, shown[-1].name if len(found) > PAGE else None)


@dataclass(frozen=True, slots=True)
class OfRun:
    """``made`` by the run; ``looked_at`` was made by another, oldest first."""

    made: tuple[Artefact, ...] = ()
    looked_at: tuple[Artefact, ...] = ()


def of_run(folder: Path, dag_id: str, run_id: str, ended_ms: int) -> OfRun:
    """What one run made, of any kind, and what it has looked at again."""
    with reading("what the run made"):
        found = [
            one for kind in KINDS for one in newest(folder, kind, OF_RUN, f"{ended_ms + 1:020d}")
        ]
    found.sort(key=lambda one: one.made_at)
    run = (dag_id, run_id)
    return OfRun(
        made=tuple(one for one in found if (one.dag_id, one.run_id) == run),
        looked_at=tuple(
            one for one in found if one.seen and (one.seen.dag_id, one.seen.run_id) == run
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
    found = (folder / path).resolve()
    given = [(folder / name).resolve() for name in _GIVEN]
    if not any(found.is_relative_to(one) for one in given) or not found.is_file():
        return None
    return found if found.stat().st_size <= _LARGEST else None
