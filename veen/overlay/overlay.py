"""Overlays: monoids over the events of a log, with a canonical encoding (spec 11.3).

A subclass defines the state of an event, how two states join, and the JSON document of a state.
Messages of other schemas, malformed bodies and unopened messages are counted in ``Skipped``, in the
same way for every overlay. The rows of a state are sorted by distinct keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Generic, TypeVar

from veen.digest import ht
from veen.errors import Malformed
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import RawItem, Version

RowT = TypeVar("RowT")
MAX_LISTED_PLACES: Final = 16
S = TypeVar("S", bound=WireMap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An opened message with its place in the log; an unopened message has no schema."""

    stream_seq: int
    hub_ts: int
    client_id: bytes
    schema: bytes
    body: bytes

    @classmethod
    def unopened(cls, *, stream_seq: int, hub_ts: int, client_id: bytes) -> Event:
        return cls(
            stream_seq=stream_seq, hub_ts=hub_ts, client_id=client_id, schema=b"", body=b""
        )  # fmt: skip

    @property
    def is_open(self) -> bool:
        return self.schema != b""


def merged(
    left: tuple[RowT, ...],
    right: tuple[RowT, ...],
    key: Callable[[RowT], Any],
    both: Callable[[RowT, RowT], RowT],
) -> tuple[RowT, ...]:
    """The rows of both sides by key; ``both`` joins two rows with the same key."""
    if not left or not right:
        return left or right
    rows = {key(row): row for row in left}
    for row in right:
        row_key = key(row)
        rows[row_key] = both(rows[row_key], row) if row_key in rows else row
    return tuple(rows[row_key] for row_key in sorted(rows))


def verify_order(keys: Iterable[Any]) -> None:
    if any(left >= right for left, right in pairwise(keys)):
        raise Malformed("rows out of order or duplicate")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedPlaces(WireArray):
    """The number of skipped messages, and the stream_seq of the first of them."""

    count: int = 0
    first: tuple[int, ...] = ()

    def rule(self) -> None:
        if len(self.first) != min(self.count, MAX_LISTED_PLACES):
            raise Malformed(
                f"skipped messages: {len(self.first)} positions do not fit a count of {self.count}"
            )
        verify_order(self.first)

    @classmethod
    def at(cls, stream_seq: int) -> SkippedPlaces:
        return cls(count=1, first=(stream_seq,))

    def then(self, later: SkippedPlaces) -> SkippedPlaces:
        first = (self.first + later.first)[:MAX_LISTED_PLACES]
        return SkippedPlaces(count=self.count + later.count, first=first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped(WireArray):
    """Skipped messages: of another schema, with a malformed body, or not opened."""

    foreign: SkippedPlaces = SkippedPlaces()
    malformed: SkippedPlaces = SkippedPlaces()
    unopened: SkippedPlaces = SkippedPlaces()

    def then(self, later: Skipped) -> Skipped:
        if later == NOTHING:
            return self
        return Skipped(
            foreign=self.foreign.then(later.foreign),
            malformed=self.malformed.then(later.malformed),
            unopened=self.unopened.then(later.unopened),
        )


NOTHING: Final = Skipped()


@dataclass(frozen=True, slots=True)
class Folded(Generic[S]):
    """The fold of a run of events: the state, and the skipped messages."""

    state: S
    skipped: Skipped = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedItem(WireMap):
    """The encoding of Folded; the state is an item of the overlay."""

    ver: Version = 1
    state: RawItem
    skipped: Skipped


class Overlay(ABC, Generic[S]):
    name: ClassVar[str]
    """The state_class of its snapshots (spec 7.2)."""
    schemas: ClassVar[frozenset[bytes]]
    kind: type[S]
    """The class of its states; the defaults are the empty state."""

    @abstractmethod
    def read(self, event: Event) -> S:
        """The state of a single event of these schemas, or Malformed."""

    @abstractmethod
    def join(self, left: S, right: S) -> S:
        """The joined state, where ``left`` is before ``right``; associative."""

    @abstractmethod
    def part(self, state: S, state_id: bytes) -> S:
        """The part of the state that belongs to ``state_id``."""

    @abstractmethod
    def document(self, state: S) -> dict[str, Any]:
        """The state as JSON, for people."""

    def empty(self) -> Folded[S]:
        return Folded(self.kind())

    def lift(self, event: Event) -> Folded[S]:
        place = SkippedPlaces.at(event.stream_seq)
        if not event.is_open:
            return Folded(self.kind(), Skipped(unopened=place))
        if event.schema not in self.schemas:
            return Folded(self.kind(), Skipped(foreign=place))
        try:
            return Folded(self.read(event))
        except Malformed:
            return Folded(self.kind(), Skipped(malformed=place))

    def merge(self, left: Folded[S], right: Folded[S]) -> Folded[S]:
        return Folded(self.join(left.state, right.state), left.skipped.then(right.skipped))

    def encode(self, folded: Folded[S]) -> bytes:
        return FoldedItem(state=folded.state.encode(), skipped=folded.skipped).encode()

    def decode(self, raw: bytes) -> Folded[S]:
        folded_item = FoldedItem.decode(raw)
        return Folded(self.kind.decode(folded_item.state), folded_item.skipped)

    def state(self, folded: Folded[S]) -> dict[str, Any]:
        return {"state": self.document(folded.state), "skipped": _skipped_document(folded.skipped)}

    def schema_set(self) -> bytes:
        """A hash of the schemas, which cached summaries have in place of the list."""
        return ht("veen/overlay-schemas", *sorted(self.schemas))


def _skipped_document(skipped: Skipped) -> dict[str, Any]:
    reasons = {
        "foreign": skipped.foreign,
        "malformed": skipped.malformed,
        "unopened": skipped.unopened,
    }
    return {
        reason: {"count": places.count, "first": list(places.first)}
        for reason, places in reasons.items()
    }


def fold_events(overlay: Overlay[S], events: Sequence[Event]) -> Folded[S]:
    """Fold a run by halves, so that a large state is not joined with single events."""
    level = [overlay.lift(event) for event in events] or [overlay.empty()]
    while len(level) > 1:
        joined = [overlay.merge(*level[at : at + 2]) for at in range(0, len(level) - 1, 2)]
        level = joined + level[len(joined) * 2 :]
    return level[0]
