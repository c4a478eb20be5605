"""One message at its place, as an engine hands it to the core (Query API 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from veen.portable import Portable
from veen.record_event import RecordEvent


class OrderKey(NamedTuple):
    """The order of rows: by time of the hub, then the bytes of the stream's name, then place."""

    hub_ts: int
    stream: bytes
    seq: int


@dataclass(frozen=True, slots=True)
class Entry(Portable):
    """``hub_ts`` is in seconds. ``event`` is None for a message that is no recorder event.

    For an event from another zone all of it is what the origin's hub said.
    """

    stream: str
    seq: int
    hub_ts: int
    leaf_hash: bytes
    event: RecordEvent | None

    @property
    def order_key(self) -> OrderKey:
        return OrderKey(self.hub_ts, self.stream.encode(), self.seq)

    @property
    def receipt_id(self) -> str:
        return receipt_id(self.leaf_hash)


def receipt_id(leaf_hash: bytes) -> str:
    """The name of the receipt of a message: its leaf, which is also its msg_id."""
    return "rcpt-" + leaf_hash.hex()
