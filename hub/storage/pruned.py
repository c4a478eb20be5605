"""The entries of a chunk that retention took away, as its records keep them."""

from __future__ import annotations

from collections.abc import Iterable

from hub.storage.logged import Logged
from veen.audit import leaves
from veen.audit.leaves import LeafRecord
from veen.layout import ChunkName


def pack(entries: Iterable[Logged]) -> bytes:
    return leaves.pack(
        LeafRecord(
            one.leaf_hash, one.client_id, one.auth_ref,
            one.client_seq, one.prev_ack, one.hub_ts, one.at,
        )
        for one in entries
    )  # fmt: skip


def unpack(raw: bytes, name: ChunkName) -> list[Logged]:
    return [
        Logged(
            seq, one.at, one.hub_ts, one.client_id,
            one.client_seq, one.prev_ack, one.auth_ref, one.leaf_hash,
        )
        for seq, one in enumerate(leaves.unpack(raw, name), name.start_seq)
    ]  # fmt: skip
