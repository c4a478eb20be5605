"""What an overlay is: a monoid over the events of a log, with one encoding (spec 11.3).

A subclass says what one event amounts to, how two states join, and how a state is told to people.
What does not belong is counted here, in the same way for every overlay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from veen.digest import ht
from veen.errors import Malformed
from veen.overlay.event import Event
from veen.overlay.skipped import NOTHING, Places, Skipped
from veen.schema import RawItem, Version
from veen.wire import WireMap

S = TypeVar("S", bound=WireMap)


@dataclass(frozen=True, slots=True)
class Folded(Generic[S]):
    """What a run of events has come to: the state, and what was left out of it."""

    state: S
    skipped: Skipped = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedItem(WireMap):
    """The encoding of Folded; the state is an item of the overlay's own."""

    ver: Version = 1
    state: RawItem
    skipped: Skipped


class Overlay(ABC, Generic[S]):
    name: ClassVar[str]
    """The state_class of its snapshots (spec 7.2)."""
    schemas: ClassVar[frozenset[bytes]]
    kind: type[S]
    """The class of its states, whose defaults make the empty one."""

    @abstractmethod
    def read(self, event: Event) -> S:
        """The state that one event of these schemas makes, or Malformed."""

    @abstractmethod
    def join(self, left: S, right: S) -> S:
        """The state of both, where ``left`` stands before ``right``; associative."""

    @abstractmethod
    def part(self, state: S, state_id: bytes) -> S:
        """What of the state belongs to ``state_id``."""

    @abstractmethod
    def document(self, state: S) -> dict[str, Any]:
        """The state as JSON, for people."""

    def empty(self) -> Folded[S]:
        return Folded(self.kind())

    def lift(self, event: Event) -> Folded[S]:
        place = Places.at(event.stream_seq)
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
        found = FoldedItem.decode(raw)
        return Folded(self.kind.decode(found.state), found.skipped)

    def state(self, folded: Folded[S]) -> dict[str, Any]:
        return {"state": self.document(folded.state), "skipped": _told(folded.skipped)}

    def schema_set(self) -> bytes:
        """What a cached summary names in place of the list of schemas."""
        return ht("veen/overlay-schemas", *sorted(self.schemas))


def _told(skipped: Skipped) -> dict[str, Any]:
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
    """The fold of a run by halves, so that no large state is joined with one event at a time."""
    level = [overlay.lift(event) for event in events] or [overlay.empty()]
    while len(level) > 1:
        joined = [overlay.merge(*level[at : at + 2]) for at in range(0, len(level) - 1, 2)]
        level = joined + level[len(joined) * 2 :]
    return level[0]
