"""Where a bridge stands: carriers by state, what is held up, and what lies in quarantine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_page_made import MayRead, seen_by_id
from veen_page_zone import Place, reading

from bridge.carrier.bag_path import carrier_name
from bridge.export_setup import exporting
from bridge.export_state import ExportState
from bridge.importer.airlock import Airlock
from bridge.importer.ledger_tables import BundleRow
from bridge.importer.status import Most, StreamStanding, standing
from bridge.settings import Settings
from recorder.artefact import Artefact

PAGE: Final = 25
HELD: Final = 25
"""How many held-up bundles stand on the page; the rest is counted."""
_MOST: Final = Most(bundles=HELD, streams=50, spans=8)
_MOST_BYTES: Final = 64 << 10
_BUNDLE: Final = re.compile(r"[0-9a-f]{64}")
_ENTRY: Final = re.compile(r"[0-9]{20}-[0-9a-f-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedStream:
    name: str
    held: str
    frozen_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """``held_up`` is the beginning of ``held_up_total``, and ``made`` what runs have kept of it;
    ``streams`` is the beginning of ``streams_total``. ``next_command`` is by hand."""

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
    """``left`` is what a run that failed has kept."""

    left: tuple[str, ...]
    last_checkpoint_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """``name`` is where it lies; ``made_at`` is in milliseconds; ``received`` as it was called."""

    name: str
    made_at: int
    code: str
    told: str
    received: str

    @property
    def place(self) -> str:
        return f"{self.made_at:020d}-{self.name}"

    @property
    def ids(self) -> tuple[str, ...]:
        """What a run may know it by: its bundle, or its carrier where no bundle could be read."""
        carrier = carrier_name(self.received)
        return (self.name[:64], carrier if carrier.startswith("carrier-") else f"carrier-{carrier}")


@dataclass(frozen=True, slots=True)
class Quarantine:
    rows: tuple[Quarantined, ...]
    total: int
    next_before: str | None


def importing_of(place: Place, may_read: MayRead) -> Importing | None:
    """None where this zone imports nothing, or did not yet."""
    airlock = place.airlock()
    if airlock is None:
        return None
    with reading("the import ledger"):
        found = standing(airlock, _MOST)
    ids = [one.bundle_id.hex() for one in found.unfinished]
    return Importing(
        states=tuple(found.bundles.items()),
        held_up=found.unfinished,
        held_up_total=found.unfinished_total,
        made=seen_by_id(place.folder, "import", ids, may_read),
        inbox=found.inbox,
        unclosed=found.unclosed,
        uncovered=found.uncovered,
        streams=tuple(
            ImportedStream(name=one.stream.name, held=_spans(one), frozen_at=one.frozen_at)
            for one in found.streams
        ),
        streams_total=found.streams_total,
        next_command=found.next_command(),
    )


def exporting_of(place: Place) -> Exporting | None:
    settings = place.bridge if place.zone.exports else None
    return None if settings is None else _exporting(settings)


def quarantine(airlock: Airlock, before: str | None = None) -> Quarantine:
    """The newest first. Folders are listed; the reasons of one page are read."""
    with reading("quarantine"):
        entries = sorted(_entries(airlock.root / "quarantine"), reverse=True)
        wanted = [one for one in entries if before is None or one < before]
        rows = tuple(_reason(airlock, one) for one in wanted[:PAGE])
    return Quarantine(rows, len(entries), rows[-1].place if len(wanted) > PAGE else None)


def runs_of(place: Place, found: Quarantine, may_read: MayRead) -> Mapping[str, Artefact]:
    """By its name in quarantine, what a run has kept of a carrier."""
    ids = (one for row in found.rows for one in row.ids)
    made = seen_by_id(place.folder, "import", ids, may_read)
    known = {row.name: [made[one] for one in row.ids if one in made] for row in found.rows}
    return {name: rows[0] for name, rows in known.items() if rows}


def is_place(before: str) -> bool:
    return _ENTRY.fullmatch(before) is not None


def receipt(place: Place, bundle_id: str) -> str | None:
    """The printed receipt of an import; None where there is none."""
    airlock = place.airlock()
    if airlock is None or not _BUNDLE.fullmatch(bundle_id):
        return None
    file = airlock.receipts / f"{bundle_id}.txt"
    with reading("the receipt"):
        return file.read_text() if file.is_file() else None


def _exporting(settings: Settings) -> Exporting:
    state = ExportState(exporting(settings).state)
    with reading("the export state"):
        last = state.last_checkpoint()
        left = tuple(one.name for one in state.left())
    return Exporting(left=left, last_checkpoint_at=last.created_at if last else None)


def _entries(folder: Path) -> Iterator[str]:
    """When each came, and its name; what is no carrier of ours is left alone."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as found:
        for one in found:
            name = f"{one.stat(follow_symlinks=False).st_mtime_ns // 1_000_000:020d}-{one.name}"
            if one.is_dir(follow_symlinks=False) and is_place(name):
                yield name


def _reason(airlock: Airlock, entry: str) -> Quarantined:
    made_at, name = int(entry[:20]), entry[21:]
    try:
        with (airlock.quarantine(name) / "reason.json").open("rb") as file:
            reason = json.loads(file.read(_MOST_BYTES))
        code, told = str(reason["code"]), str(reason["told"])
        received = str(next(iter(reason["received"]), "")).rpartition("/")[2]
    except (OSError, ValueError, KeyError, TypeError) as error:
        code, told = "unknown", f"its reason.json cannot be read: {type(error).__name__}"
        received = ""
    return Quarantined(name=name, made_at=made_at, code=code, told=told, received=received)


def _spans(one: StreamStanding) -> str:
    shown = ", ".join(f"{span.first} to {span.last}" for span in one.held)
    more = one.held_total - len(one.held)
    return f"{shown}, and {more} more" if more else shown
