"""Stage 4 of admission, its checks: where a message may stand in its label (spec 7, 8.2)."""

from __future__ import annotations

from collections.abc import Callable

from hub.admission.verified import Verified
from hub.registry import Routed
from veen.errors import Failure, Rejected
from veen.invariants import ClientCursor


def in_sequence(
    verified: Verified,
    cursor: ClientCursor,
    head_seq: int,
    routed: Routed | None,
    seq_of: Callable[[int], int | None],
) -> None:
    """Refuse a message out of order; ``seq_of`` finds an earlier client_seq of the client."""
    known = verified.client_seq <= cursor.client_seq and verified.client_seq > 0
    if verified.prev_ack > head_seq or verified.prev_ack < cursor.prev_ack:
        raise Rejected(
            Failure.PREV_ACK,
            f"prev_ack {verified.prev_ack} is not between {cursor.prev_ack} and {head_seq}",
            stream_seq=seq_of(verified.client_seq) if known else None,
        )
    if known:
        raise Rejected(
            Failure.DUPLICATE,
            f"client_seq {verified.client_seq} is in the log already",
            stream_seq=seq_of(verified.client_seq),
        )
    if verified.client_seq != cursor.client_seq + 1:
        raise Rejected(
            Failure.CLIENT_SEQ,
            f"client_seq {verified.client_seq} does not follow {cursor.client_seq}",
        )
    if routed is not None and not routed.in_window:
        raise Rejected(Failure.EPOCH, f"epoch {routed.epoch} is outside the accepted window")
