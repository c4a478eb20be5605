"""The state of a bridge: carriers by state, open questions to people, and the quarantine."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select
from sqlalchemy.orm import Session
from veen_page_artefacts import MayRead, seen_by_id
from veen_page_services import ZonePlace, reading

from bridge.carrier.directory import carrier_name
from bridge.exporter.run import exporting
from bridge.exporter.state import ExportState
from bridge.importer.directory import ImportDirectory
from bridge.importer.ledger import BundleRow
from bridge.importer.reason import read_carrier
from bridge.importer.status import ImportStreamStatus, StatusLimits, import_status
from bridge.settings import BridgeSettings
from zone.artefacts import Artefact

PAGE: Final = 25
HELD: Final = 25
"""How many held bundles are on the page; the rest is counted."""
_MOST: Final = StatusLimits(bundles=HELD, streams=50, spans=8)
_BUNDLE: Final = re.compile(r"[0-9a-f]{64}")
_ENTRY: Final = re.compile(r"[0-9]{20}-[0-9a-f-]{1,100}")
MOST: Final = 25
_OURS: Final = "veen\\_%"
_OPEN: Final = (
    TaskInstanceState.AWAITING_INPUT,
    TaskInstanceState.DEFERRED,
    TaskInstanceState.RUNNING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedStream:
    name: str
    held: str
    frozen_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """The importing side. ``held_up`` are the first of ``held_up_total``, and ``made`` their
    artefacts; ``streams`` are the first of ``streams_total``. ``next_command`` is for people."""

    states: tuple[tuple[str, int], ...]
    held_up: tuple[BundleRow, ...]
    held_up_total: int
    made: Mapping[str, Artefact]
    inbox: int
    unclosed: int
    uncovered: int
    streams: tuple[ImportedStream, ...]
    streams_total: int
    next_command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporting:
    """The exporting side; ``left`` is what a failed run left behind."""

    left: tuple[str, ...]
    last_checkpoint_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRow:
    """A quarantined carrier: its ``name`` there, ``made_at`` in milliseconds, ``received``
    names.
    """

    name: str
    made_at: int
    code: str
    detail: str
    received: str

    @property
    def place(self) -> str:
        return f"{self.made_at:020d}-{self.name}"

    @property
    def ids(self) -> tuple[str, ...]:
        """The id of its artefact: its bundle, or its carrier if the bundle could not be read."""
        carrier = carrier_name(self.received)
        return (self.name[:64], carrier if carrier.startswith("carrier-") else f"carrier-{carrier}")


@dataclass(frozen=True, slots=True)
class Quarantine:
    rows: tuple[QuarantineRow, ...]
    total: int
    next_before: str | None


def importing_of(place: ZonePlace, may_read: MayRead) -> Importing | None:
    """The importing side; None if this zone does not import, or has not yet."""
    import_dir = place.import_dir()
    if import_dir is None:
        return None
    with reading("the import ledger"):
        status = import_status(import_dir, _MOST)
    ids = [item.bundle_id.hex() for item in status.unfinished]
    return Importing(
        states=tuple(status.bundles.items()),
        held_up=status.unfinished,
        held_up_total=status.unfinished_total,
        made=seen_by_id(place.folder, "import", ids, may_read),
        inbox=status.inbox,
        unclosed=status.unclosed,
        uncovered=status.uncovered,
        streams=tuple(
            ImportedStream(name=stream.stream.name, held=_spans(stream), frozen_at=stream.frozen_at)
            for stream in status.streams
        ),
        streams_total=status.streams_total,
        next_command=status.next_command(),
    )


def exporting_of(place: ZonePlace) -> Exporting | None:
    settings = place.bridge if place.zone.exports else None
    return None if settings is None else _exporting(settings)


def quarantine(import_dir: ImportDirectory, before: str | None = None) -> Quarantine:
    """A page of the quarantine, newest first; only the reasons of that page are read."""
    with reading("quarantine"):
        entries = sorted(_entries(import_dir.root / "quarantine"), reverse=True)
        matching = [entry for entry in entries if before is None or entry < before]
        rows = tuple(_reason(import_dir, item) for item in matching[:PAGE])
    return Quarantine(rows, len(entries), rows[-1].place if len(matching) > PAGE else None)


def runs_of(place: ZonePlace, quarantine: Quarantine, may_read: MayRead) -> Mapping[str, Artefact]:
    """The artefacts of quarantined carriers, by their name in quarantine."""
    ids = (id_ for row in quarantine.rows for id_ in row.ids)
    made = seen_by_id(place.folder, "import", ids, may_read)
    known = {row.name: [made[id_] for id_ in row.ids if id_ in made] for row in quarantine.rows}
    return {name: rows[0] for name, rows in known.items() if rows}


def is_place(before: str) -> bool:
    return _ENTRY.fullmatch(before) is not None


def receipt(place: ZonePlace, bundle_id: str) -> str | None:
    """The printed receipt of an import; None if there is none."""
    import_dir = place.import_dir()
    if import_dir is None or not _BUNDLE.fullmatch(bundle_id):
        return None
    file = import_dir.receipts / f"{bundle_id}.txt"
    with reading("the receipt"):
        return file.read_text() if file.is_file() else None


def _exporting(settings: BridgeSettings) -> Exporting:
    state = ExportState(exporting(settings).state)
    with reading("the export state"):
        last = state.last_checkpoint()
        left = tuple(path.name for path in state.left())
    return Exporting(left=left, last_checkpoint_at=last.created_at if last else None)


def _entries(folder: Path) -> Iterator[str]:
    """Time and name of each entry of the quarantine; other files are skipped."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for item in entries:
            name = f"{item.stat(follow_symlinks=False).st_mtime_ns // 1_000_000:020d}-{item.name}"
            if item.is_dir(follow_symlinks=False) and is_place(name):
                yield name


def _reason(import_dir: ImportDirectory, entry: str) -> QuarantineRow:
    made_at, name = int(entry[:20]), entry[21:]
    carrier = read_carrier(import_dir.quarantine(name))
    return QuarantineRow(
        name=name,
        made_at=made_at,
        code=carrier.code,
        detail=carrier.detail,
        received=carrier.received.rpartition("/")[2],
    )


def _spans(stream_status: ImportStreamStatus) -> str:
    shown = ", ".join(f"{span.first} to {span.last}" for span in stream_status.held)
    more = stream_status.held_total - len(stream_status.held)
    return f"{shown}, and {more} more" if more else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingApproval:
    """An open question; ``people`` may answer, or everybody who may run the DAG if it is empty."""

    subject: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    asked_at: int
    people: tuple[str, ...]


def waiting(session: Session, dag_ids: Collection[str]) -> tuple[WaitingApproval, ...]:
    """The open questions, oldest first."""
    rows = session.execute(
        select(HITLDetail, TaskInstance)
        .join(TaskInstance, HITLDetail.ti_id == TaskInstance.id)
        .where(
            HITLDetail.responded_at.is_(None),
            TaskInstance.state.in_(_OPEN),
            TaskInstance.dag_id.in_(dag_ids),
            TaskInstance.dag_id.like(_OURS, escape="\\"),
        )
        .order_by(HITLDetail.created_at)
        .limit(MOST)
    )
    return tuple(
        WaitingApproval(
            subject=detail.subject,
            dag_id=task.dag_id,
            run_id=task.run_id,
            task_id=task.task_id,
            map_index=task.map_index,
            asked_at=int(detail.created_at.timestamp()),
            people=tuple(assigned_user["name"] for assigned_user in detail.assigned_users),
        )
        for detail, task in rows
    )
