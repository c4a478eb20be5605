"""What a fold left out: how many messages for each reason, and where the first ones stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen.errors import Malformed
from veen.overlay.rows import refuse_disorder
from veen.wire import WireArray

KEPT_PLACES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Places(WireArray):
    """A count of messages, and the stream_seq of the first of them."""

    count: int = 0
    first: tuple[int, ...] = ()

    def rule(self) -> None:
        if len(self.first) != min(self.count, KEPT_PLACES):
            raise Malformed(f"{len(self.first)} places of {self.count} messages")
        refuse_disorder(self.first)

    @classmethod
    def at(cls, stream_seq: int) -> Places:
        return cls(count=1, first=(stream_seq,))

    def then(self, later: Places) -> Places:
        first = (self.first + later.first)[:KEPT_PLACES]
        return Places(count=self.count + later.count, first=first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped(WireArray):
    """Messages of another schema, bodies that are not what their schema says, and messages
    that the reader's key does not open."""

    foreign: Places = Places()
    malformed: Places = Places()
    unopened: Places = Places()

    def then(self, later: Skipped) -> Skipped:
        if later == NOTHING:
            return self
        return Skipped(
            foreign=self.foreign.then(later.foreign),
            malformed=self.malformed.then(later.malformed),
            unopened=self.unopened.then(later.unopened),
        )


NOTHING: Final = Skipped()
