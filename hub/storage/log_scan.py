"""Entries and control records of the log, as derived state needs them.

``Logged`` is an entry without its payload, read from a chunk or from the records of a pruned one.
``index_control`` and ``register_streams`` apply control records to the index and the registry.
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
    """What derived state needs of an entry."""

    seq: int
    at: int
    hub_ts: int
    client_id: bytes
    client_seq: int
    prev_ack: int
    auth_ref: bytes | None
    leaf_hash: bytes
    root: bytes | None = None
    """mmr_root of the receipt; the records of pruned chunks do not have it."""

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
    """Write a control record to the index, within a transaction; the registry is only read.

    ``register_streams`` updates the registry once the transaction is committed: a stream that is
    only in memory would be acknowledged, and lost by a restart.
    """
    token = record.token()
    if token is not None:
        index.add_token(TokenRow(token.auth_ref(), record.body, hub_ts, seq))
    for stream in record.streams():
        if registry.is_new(stream) or not stream.is_nameless():
            index.add_stream(stream.stream_id(), stream.name, stream.encode())


def register_streams(registry: Registry, record: ControlRecord) -> None:
    """Add the streams of a committed record to the registry."""
    for stream in record.streams():
        registry.add(stream)


def learn_control(
    index: Index, registry: Registry, record: ControlRecord, seq: int, hub_ts: int
) -> None:
    """Index a record and update the registry, for a caller that ends if the transaction fails."""
    index_control(index, registry, record, seq, hub_ts)
    register_streams(registry, record)
