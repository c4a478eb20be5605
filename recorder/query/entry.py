"""One message at its place, as an engine hands it to the core (Query API 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from veen.portable import Portable
from veen.record_event import RecordEvent


class OrderKey(NamedTuple):
    """The order of rows: by time of the hub, then the bytes of the stream's name, then place.

    Of an event in an import stream these are of its origin. The last two tell it apart from an
    event that has the same place at another hub; nothing else has them.
    """

    hub_ts: int
    stream: bytes
    seq: int
    import_stream: bytes = b""
    import_seq: int = 0


class Source(NamedTuple):
    """The place of an imported event at its origin, as the origin's hub has signed it."""

    hub_id: bytes
    stream: str
    seq: int
    hub_ts: int
    leaf_hash: bytes


@dataclass(frozen=True, slots=True)
class Entry(Portable):
    """``hub_ts`` is in seconds. ``event`` is None for a message that is no recorder event.

    The place is that of the stream that was searched. In an import stream it is the place here, and
    ``source`` is the one at the origin, by which the event is filtered and ordered.
    """

    stream: str
    seq: int
    hub_ts: int
    leaf_hash: bytes
    event: RecordEvent | None
    source: Source | None = None

    @property
    def commit_ts(self) -> int:
        """The hub_commit_time that a query's time filter goes by: the origin's, if it has one."""
        return self.hub_ts if self.source is None else self.source.hub_ts

    @property
    def order_key(self) -> OrderKey:
        stream, source = self.stream.encode(), self.source
        if source is None:
            return OrderKey(self.hub_ts, stream, self.seq)
        return OrderKey(source.hub_ts, source.stream.encode(), source.seq, stream, self.seq)

    @property
    def receipt_id(self) -> str:
        return receipt_id(self.leaf_hash)


def receipt_id(leaf_hash: bytes) -> str:
    """The name of the receipt of a message: its leaf, which is also its msg_id."""
    return "rcpt-" + leaf_hash.hex()
