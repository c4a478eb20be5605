"""The streams of a zone: heads, rates, and how far the last checkpoint goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from veen_page_zone import Place, reading

from recorder.checkpoints.door import Door
from recorder.index.home import IndexHome
from recorder.index.status import IndexStatus, StreamLag, status
from veen.recorder_checkpoint import RecorderCheckpoint

PAGE: Final = 50
_BACK: Final = 12
"""A rate is taken over so many checkpoints: over one it would jump."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """``head`` is the last event that is known of, ``unsigned`` how many no checkpoint covers.

    ``per_minute`` is between checkpoints; None before there are two. ``behind`` are events that
    queries do not see yet; None where the stream is not indexed.
    """

    name: str
    head: int
    unsigned: int
    per_minute: float | None
    behind: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """``asked_sec`` is since the hub told the heads; None where nobody has asked it."""

    rows: tuple[StreamRow, ...]
    total: int
    next_after: str | None
    asked_sec: int | None
    trouble: str | None
    alarms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """The last checkpoint, and one before it to compare with."""

    last: RecorderCheckpoint | None
    earlier: RecorderCheckpoint | None


def kept(door: Door) -> Kept:
    with reading("the checkpoints"):
        shelf = door.shelf()
        names = shelf.names()[-_BACK:]
        last = shelf.get(names[-1]) if names else None
        return Kept(last, shelf.get(names[0]) if len(names) > 1 else None)


def streams(place: Place, found: Kept, *, now: int, after: str = "") -> Streams:
    with reading("the index"):
        home = IndexHome(place.recorder.index)
        index = status(home, now) if home.exists() else None
    lags = _lags(index)
    names = sorted({*lags, *(found.last.names if found.last else ())})
    wanted = [name for name in names if name > after]
    return Streams(
        rows=tuple(_row(name, lags.get(name), found) for name in wanted[:PAGE]),
        total=len(names),
        next_after=wanted[PAGE - 1] if len(wanted) > PAGE else None,
        asked_sec=index.asked_sec if index else None,
        trouble=index.trouble if index else "there is no index: veen recorder serve builds it",
        alarms=index.alarms if index else (),
    )


def _lags(index: IndexStatus | None) -> Mapping[str, StreamLag]:
    """Of the zone's own hub; what was imported is told by the bridge."""
    own = index.streams if index else ()
    return {one.stream: one for one in own if index and one.hub_id == index.hub_id}


def _row(name: str, lag: StreamLag | None, found: Kept) -> StreamRow:
    signed = _seq(found.last, name)
    head = max(signed, lag.head if lag else 0)
    return StreamRow(
        name=name,
        head=head,
        unsigned=head - signed,
        per_minute=_rate(name, found),
        behind=max(head - lag.indexed, 0) if lag else None,
    )


def _rate(name: str, found: Kept) -> float | None:
    if found.last is None or found.earlier is None:
        return None
    seconds = found.last.created_at - found.earlier.created_at
    moved = _seq(found.last, name) - _seq(found.earlier, name)
    return 60 * moved / seconds if seconds > 0 else None


def _seq(checkpoint: RecorderCheckpoint | None, name: str) -> int:
    end = checkpoint.end(name) if checkpoint else None
    return end.last_seq if end else 0
