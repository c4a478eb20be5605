"""Flights: sealed messages that may be on their way, and the places they are meant for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

_COID_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One attempt at one client_seq. ``withdrawn`` is an attempt nobody waits for any more."""

    event_id: int
    label: bytes
    epoch: int
    client_id: bytes
    client_seq: int
    prev_ack: int
    auth_ref: bytes | None
    leaf: bytes
    coids: bytes
    msg: bytes = field(repr=False)
    withdrawn: bool = False

    def attachment_ids(self) -> tuple[bytes, ...]:
        starts = range(0, len(self.coids), _COID_BYTES)
        return tuple(self.coids[at : at + _COID_BYTES] for at in starts)


@dataclass(frozen=True, slots=True)
class Slot:
    """One client_seq of one client in one label, and every attempt made at it.

    The last attempt is the one to send; the hub can have taken any of them, but one at most.
    """

    attempts: tuple[Flight, ...]

    @property
    def current(self) -> Flight:
        return self.attempts[-1]

    @property
    def event_id(self) -> int:
        return self.current.event_id

    @property
    def label(self) -> bytes:
        return self.current.label

    @property
    def client_id(self) -> bytes:
        return self.current.client_id

    @property
    def client_seq(self) -> int:
        return self.current.client_seq

    @property
    def is_shared(self) -> bool:
        """Whether a withdrawn event may stand in this place without our knowing."""
        return any(one.withdrawn for one in self.attempts)

    def attempt(self, leaf: bytes) -> Flight | None:
        return next((one for one in self.attempts if one.leaf == leaf), None)

    def again(self, flight: Flight) -> Slot:
        """The slot with one more attempt at it."""
        return replace(self, attempts=(*self.attempts, flight))
