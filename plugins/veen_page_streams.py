"""The streams of a zone: heads, rates, and how far the last checkpoint goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from veen_page_made import MayRead, seen_by_id
from veen_page_zone import Place, reading

from recorder.artefact import Artefact
from recorder.checkpoints.door import Door
from recorder.checkpoints.home import CheckpointName, files, parse_name
from recorder.index.home import IndexHome
from recorder.index.status import IndexStatus, StreamLag, status
from veen.recorder_checkpoint import RecorderCheckpoint

PAGE: Final = 50
_BACK: Final = 12
"""A rate is taken over so many checkpoints: over one it would jump."""
_NEWEST: Final = 500
"""So many of the last checkpoints are looked at; an anchor is seldom further back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """``head`` is the last event that is known of, ``unsigned`` how many no checkpoint covers.

    ``per_minute`` is between checkpoints; None before there are two. ``behind`` are events that
    queries do not see yet, ``unread`` messages in the index that are no events to a query; both are
    None where the stream is not indexed. ``checkpoint`` is the last one that covers the stream;
    None before there is one.
    """

    name: str
    head: int
    unsigned: int
    per_minute: float | None
    behind: int | None
    unread: int | None
    checkpoint: CheckpointName | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """``asked_sec`` is since the hub told the heads; None where nobody has asked it. ``unread`` are
    messages of all indexed streams, imported ones included. ``made`` are the runs that made the
    checkpoints, by checkpoint_id in hex."""

    rows: tuple[StreamRow, ...]
    total: int
    next_after: str | None
    asked_sec: int | None
    trouble: str | None
    alarms: tuple[str, ...]
    unread: int
    made: Mapping[str, Artefact]


@dataclass(frozen=True, slots=True)
class Kept:
    """The last checkpoint, and one before it to compare with. ``names`` are the newest of
    ``total``, in order of time."""

    last: RecorderCheckpoint | None
    earlier: RecorderCheckpoint | None
    names: tuple[CheckpointName, ...] = ()
    total: int = 0

    def covering(self, name: str) -> CheckpointName | None:
        """The last one that speaks of a stream."""
        known = (one for one in (self.last, self.earlier) if one and one.end(name))
        return next((CheckpointName.of(one) for one in known), None)


def kept(door: Door) -> Kept:
    """Names sort by time, and those of the newest alone are read."""
    with reading("the checkpoints"):
        shelf, home = door.shelf(), door.home
        stored, unstored = files(home.checkpoints), files(home.unstored)
        newest = sorted({*stored[-_NEWEST:], *unstored[-_NEWEST:]})[-_NEWEST:]
        names = tuple(one for one in map(parse_name, newest) if one is not None)
        back = names[-_BACK:]
        return Kept(
            last=shelf.get(back[-1]) if back else None,
            earlier=shelf.get(back[0]) if len(back) > 1 else None,
            names=names,
            total=len({*stored, *unstored}),
        )


def streams(
    place: Place,
    found: Kept,
    *,
    now: int,
    may_read: MayRead,
    live: Mapping[str, int] | None = None,
    after: str = "",
) -> Streams:
    """``live`` is what the hub tells at this moment, where it can be asked."""
    with reading("the index"):
        home = IndexHome(place.recorder.index)
        index = status(home, now) if home.exists() else None
    lags, told = _lags(index), live or {}
    names = sorted({*told, *lags, *(found.last.names if found.last else ())})
    wanted = [name for name in names if name > after]
    ids = [one.checkpoint_id.hex() for one in (found.last, found.earlier) if one]
    return Streams(
        rows=tuple(_row(name, lags.get(name), told.get(name, 0), found) for name in wanted[:PAGE]),
        total=len(names),
        next_after=wanted[PAGE - 1] if len(wanted) > PAGE else None,
        asked_sec=0 if live is not None else index.asked_sec if index else None,
        trouble=index.trouble if index else "there is no index: veen recorder serve builds it",
        alarms=index.alarms if index else (),
        unread=sum(one.unread for one in index.streams) if index else 0,
        made=seen_by_id(place.folder, "checkpoint", ids, may_read),
    )


def _lags(index: IndexStatus | None) -> Mapping[str, StreamLag]:
    """Of the zone's own hub; what was imported is told by the bridge."""
    own = index.streams if index else ()
    return {one.stream: one for one in own if index and one.hub_id == index.hub_id}


def _row(name: str, lag: StreamLag | None, told: int, found: Kept) -> StreamRow:
    signed = _seq(found.last, name)
    head = max(signed, told, lag.head if lag else 0)
    return StreamRow(
        name=name,
        head=head,
        unsigned=head - signed,
        per_minute=_rate(name, found),
        behind=max(head - lag.indexed, 0) if lag else None,
        unread=lag.unread if lag else None,
        checkpoint=found.covering(name),
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
