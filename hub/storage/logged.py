"""An entry of the log as the index and the records of pruned chunks keep it."""

from __future__ import annotations

from dataclasses import dataclass

from veen.entry import FramedEntry


@dataclass(frozen=True, slots=True)
class Logged:
    """What derived state needs of one entry, wherever it was read."""

    seq: int
    at: int
    hub_ts: int
    client_id: bytes
    client_seq: int
    prev_ack: int
    auth_ref: bytes | None
    leaf_hash: bytes
    root: bytes | None = None
    """mmr_root of the receipt; the records of pruned chunks do not keep it."""

    @classmethod
    def of(cls, framed: FramedEntry, at: int) -> Logged:
        msg, receipt = framed.msg, framed.receipt
        return cls(
            receipt.stream_seq, at, receipt.hub_ts, msg.client_id, msg.client_seq,
            msg.prev_ack, msg.auth_ref, receipt.leaf_hash, receipt.mmr_root,
        )  # fmt: skip
