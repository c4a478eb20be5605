"""An entry of the log as the index and the records of pruned chunks keep it.

The entries of a chunk that retention took away, as its records keep them.

What the records of the control log mean for the index and for the registry in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hub.registry import Registry
from hub.storage.index import Index, TokenRow
from veen.log.entry import ControlRecord, FramedEntry
from veen.log.layout import ChunkName, LeafRecord, pack_leaves, unpack_leaves


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


def pack_pruned(entries: Iterable[Logged]) -> bytes:
    return pack_leaves(
        LeafRecord(
            entry.leaf_hash, entry.client_id, entry.auth_ref,
            entry.client_seq, entry.prev_ack, entry.hub_ts, entry.at,
        )
        for entry in entries
    )  # fmt: skip


def unpack_pruned(raw: bytes, name: ChunkName) -> list[Logged]:
    return [
        Logged(
            seq, leaf.at, leaf.hub_ts, leaf.client_id,
            leaf.client_seq, leaf.prev_ack, leaf.auth_ref, leaf.leaf_hash,
        )
        for seq, leaf in enumerate(unpack_leaves(raw, name), name.start_seq)
    ]  # fmt: skip


def index_control(
    index: Index, registry: Registry, record: ControlRecord, seq: int, hub_ts: int
) -> None:
    """Write a record to the index, within a transaction; the registry is only read.

    The registry follows by ``register_streams`` once the transaction is committed: a stream that
    only memory knows would be acknowledged, and gone after a restart.
    """
    token = record.token()
    if token is not None:
        index.add_token(TokenRow(token.auth_ref(), record.body, hub_ts, seq))
    for stream in record.streams():
        if registry.is_news(stream) or not stream.is_nameless():
            index.add_stream(stream.stream_id(), stream.name, stream.encode())


def register_streams(registry: Registry, record: ControlRecord) -> None:
    """Make the streams of a committed record known."""
    for stream in record.streams():
        registry.add(stream)


def learn_control(
    index: Index, registry: Registry, record: ControlRecord, seq: int, hub_ts: int
) -> None:
    """Both, for whoever gives up altogether when the transaction fails."""
    index_control(index, registry, record, seq, hub_ts)
    register_streams(registry, record)
