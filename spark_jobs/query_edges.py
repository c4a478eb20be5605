"""What a query verifies of the messages of a chunk, by their place in its span of time."""

from __future__ import annotations

from typing import Final

from spark_jobs.chunk_window import Placed
from spark_jobs.log_bounds import Span
from spark_jobs.query_plan import Piece
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity

_BEFORE: Final = 0
_WITHIN: Final = 1
_AFTER: Final = 2


class Edges:
    """Verifies all within a span of time, and outside of it the first and the last message: since
    times never go back, that shows where the others are.
    """

    def __init__(self, hub: HubIdentity, piece: Piece) -> None:
        self._hub = hub
        self._piece = piece
        self._zone: int | None = None
        self._last_ts = 0
        self._waiting: Placed | None = None

    def passes(self, placed: Placed) -> bool:
        """Whether the message, which is the next, is within the span."""
        hub_ts = placed.framed.receipt.hub_ts
        if hub_ts < self._last_ts:
            raise self._untrusted(placed, "its time is before that of the message before it")
        zone = _zone(self._piece.span, hub_ts)
        if zone != self._zone:
            self.finish()
        if zone == _WITHIN or zone != self._zone:
            self._verify(placed)
        else:
            self._waiting = placed
        self._zone, self._last_ts = zone, hub_ts
        return zone == _WITHIN

    def finish(self) -> None:
        if self._waiting is not None:
            self._verify(self._waiting)
        self._waiting = None

    def _verify(self, placed: Placed) -> None:
        msg, receipt = placed.framed.msg, placed.framed.receipt
        try:
            self._hub.verify_receipt(receipt)
        except Untrusted as error:
            raise self._untrusted(placed, str(error)) from error
        if msg.leaf_hash() != receipt.leaf_hash:
            raise self._untrusted(placed, "the receipt is of another message")
        if not msg.ct_hash_matches():
            raise self._untrusted(placed, "ct_hash is not the hash of the ciphertext")
        if not msg.signature_is_valid():
            raise self._untrusted(placed, "the message is not signed by its client")

    def _untrusted(self, placed: Placed, why: str) -> Untrusted:
        seq, file = placed.framed.header.stream_seq, self._piece.chunk.file
        return Untrusted(f"{seq} in {file} at byte {placed.at}: {why}; verify_log tells more")


def _zone(span: Span, hub_ts: int) -> int:
    if hub_ts < span.first:
        return _BEFORE
    return _WITHIN if hub_ts <= span.last else _AFTER
