"""The first page: all its sections, each of which may fail without hiding the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from veen_page_artefacts import SHORT, ArtefactPage, MayRead, alarms, page, picture_of
from veen_page_bridge import (
    Exporting,
    Importing,
    Quarantine,
    exporting_of,
    importing_of,
    quarantine,
    runs_of,
)
from veen_page_log import (
    CheckpointPair,
    Checkpoints,
    Heads,
    PageStreams,
    checkpoints,
    recorder_services,
    stored,
    streams,
)
from veen_page_services import (
    Look,
    PendingRequest,
    ServiceState,
    ZonePlace,
    addresses,
    reading,
    services,
)

from veen.errors import VeenError
from veen.system.zone_parts import FILE, ZonePart, decode
from zone.artefacts import Artefact
from zone.config import ZoneConfig

T = TypeVar("T")
LISTS = ("audit", "checkpoint", "anchor", "export", "import")
"""The lists whose first entries are on the first page."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of the zone: ``wrong`` do not work now, ``restarted`` work again."""

    wrong: tuple[ZonePart, ...]
    restarted: tuple[ZonePart, ...]


def parts(place: ZonePlace) -> Parts | None:
    """The supervised parts; None without a supervisor, as in containers."""
    file = place.folder / FILE
    with reading("the state of the supervisor"):
        if not file.exists():
            return None
        report = decode(file.read_bytes())
    return Parts(
        tuple(item for item in report if not item.is_ready),
        tuple(item for item in report if item.is_ready and item.restarts),
    )


@dataclass(frozen=True, slots=True)
class PagePart(Generic[T]):
    """A section: its content, or the reason why it has none."""

    known: T | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class QuarantineState:
    """The quarantine, and the artefacts of its carriers."""

    quarantine: Quarantine
    made: Mapping[str, Artefact]


@dataclass(frozen=True, slots=True)
class ReconcileState:
    newest: Artefact
    has_picture: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The content of the page; ``hub_answers`` is whether the heads are current."""

    zone: ZoneConfig
    services: tuple[ServiceState, ...]
    hub_answers: bool
    parts: PagePart[Parts | None]
    waiting: Sequence[Any]
    alarms: PagePart[ArtefactPage]
    streams: PagePart[PageStreams]
    checkpoints: PagePart[Checkpoints]
    importing: PagePart[Importing | None]
    exporting: PagePart[Exporting | None]
    held: PagePart[QuarantineState | None]
    reconciled: PagePart[ReconcileState | None]
    made: Mapping[str, PagePart[ArtefactPage]]


def overview(
    place: ZonePlace,
    *,
    now: int,
    may_read: MayRead,
    open_questions: Callable[[], Sequence[Any]],
    look: Look,
    heads: Heads,
    random: Callable[[int], bytes],
) -> Overview:
    recorder = recorder_services(place, random)
    part = _part(lambda: stored(recorder))
    ends = part.known or CheckpointPair(None, None)
    asked = PendingRequest(lambda: heads(place))
    ready = services(addresses(place), look)
    # A single probe decides whether it answers: an earlier answer to another thread is outdated.
    hub_answers = ready[0].is_up
    live = asked.answer() if hub_answers else None
    return Overview(
        zone=place.zone,
        services=ready,
        hub_answers=hub_answers,
        parts=_part(lambda: parts(place)),
        waiting=open_questions(),
        alarms=_part(lambda: alarms(place.folder, may_read)),
        streams=_part(lambda: streams(place, ends, now=now, may_read=may_read, live=live)),
        checkpoints=PagePart(None, part.trouble)
        if part.trouble
        else _part(lambda: checkpoints(place, recorder, ends, now=now, may_read=may_read)),
        importing=_part(lambda: importing_of(place, may_read)),
        exporting=_part(lambda: exporting_of(place)),
        held=_part(lambda: _held(place, may_read)),
        reconciled=_part(lambda: _reconciled(place, may_read)),
        made={kind: _part(_listed(place, kind, may_read)) for kind in LISTS},
    )


def _listed(place: ZonePlace, kind: str, may_read: MayRead) -> Callable[[], ArtefactPage]:
    return lambda: page(place.folder, kind, SHORT, may_read)


def _held(place: ZonePlace, may_read: MayRead) -> QuarantineState | None:
    import_dir = place.import_dir()
    if import_dir is None:
        return None
    held = quarantine(import_dir)
    return QuarantineState(held, runs_of(place, held, may_read))


def _reconciled(place: ZonePlace, may_read: MayRead) -> ReconcileState | None:
    rows = page(place.folder, "reconcile", 1, may_read).rows
    return ReconcileState(rows[0], picture_of(place.folder, rows[0]) is not None) if rows else None


def _part(value: Callable[[], T]) -> PagePart[T]:
    try:
        return PagePart(value())
    except VeenError as error:
        return PagePart(None, str(error) or type(error).__name__)
