"""All that the first page shows, put together; a part that cannot be told does not hide others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from veen_page_bridge import (
    Exporting,
    Importing,
    Quarantine,
    exporting_of,
    importing_of,
    quarantine,
    runs_of,
)
from veen_page_checkpoints import Checkpoints, checkpoints, door_of
from veen_page_heads import Heads
from veen_page_made import SHORT, MayRead, Page, alarms, page, picture_of
from veen_page_parts import Parts, parts
from veen_page_services import Asked, Look, Service, addresses, services
from veen_page_streams import Kept, Streams, kept, streams
from veen_page_zone import Place

from recorder.artefact import Artefact
from recorder.zone import Zone
from veen.errors import VeenError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """What is known, or why nothing is."""

    known: T | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """What lies in quarantine, and what the runs have kept of it."""

    quarantine: Quarantine
    made: Mapping[str, Artefact]


@dataclass(frozen=True, slots=True)
class Reconciled:
    newest: Artefact
    has_picture: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """``hub_answers`` says whether heads are those of now; a hub that is down told them before."""

    zone: Zone
    services: tuple[Service, ...]
    hub_answers: bool
    parts: Part[Parts | None]
    waiting: Sequence[Any]
    alarms: Part[Page]
    streams: Part[Streams]
    checkpoints: Part[Checkpoints]
    importing: Part[Importing | None]
    exporting: Part[Exporting | None]
    held: Part[Held | None]
    reconciled: Part[Reconciled | None]
    made: Mapping[str, Part[Page]]


LISTS = ("audit", "checkpoint", "anchor", "export", "import")
"""The lists whose beginning stands on the first page."""


def overview(
    place: Place,
    *,
    now: int,
    may_read: MayRead,
    open_questions: Callable[[], Sequence[Any]],
    look: Look,
    heads: Heads,
    random: Callable[[int], bytes],
) -> Overview:
    door = door_of(place, random)
    found = _part(lambda: kept(door))
    ends = found.known or Kept(None, None)
    asked = Asked(lambda: heads(place))
    ready = services(addresses(place), look)
    # One look says whether it answers: what it told another thread a moment before is old.
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
        checkpoints=Part(None, found.trouble)
        if found.trouble
        else _part(lambda: checkpoints(place, door, ends, now=now, may_read=may_read)),
        importing=_part(lambda: importing_of(place, may_read)),
        exporting=_part(lambda: exporting_of(place)),
        held=_part(lambda: _held(place, may_read)),
        reconciled=_part(lambda: _reconciled(place, may_read)),
        made={kind: _part(_listed(place, kind, may_read)) for kind in LISTS},
    )


def _listed(place: Place, kind: str, may_read: MayRead) -> Callable[[], Page]:
    return lambda: page(place.folder, kind, SHORT, may_read)


def _held(place: Place, may_read: MayRead) -> Held | None:
    airlock = place.airlock()
    if airlock is None:
        return None
    found = quarantine(airlock)
    return Held(found, runs_of(place, found, may_read))


def _reconciled(place: Place, may_read: MayRead) -> Reconciled | None:
    rows = page(place.folder, "reconcile", 1, may_read).rows
    return Reconciled(rows[0], picture_of(place.folder, rows[0]) is not None) if rows else None


def _part(told: Callable[[], T]) -> Part[T]:
    try:
        return Part(told())
    except VeenError as error:
        return Part(None, str(error) or type(error).__name__)
