"""What stays of a chunk that retention took away: its tombstone and one record an entry."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final

from hub.storage.logged import Logged
from veen.errors import Malformed
from veen.layout import ChunkName, chunk

_RECORD: Final = struct.Struct(">32s32s32sQQQQ")
_NO_AUTH: Final = bytes(32)
_TOMBSTONE: Final = re.compile(r"log/tombstone-([0-9a-f]{64})-(\d{20})-(\d{20})\.cbor")


def tombstone(name: ChunkName) -> str:
    return f"log/tombstone-{_stem(name)}.cbor"


def leaves(name: ChunkName) -> str:
    return f"log/leaves-{_stem(name)}.bin"


def parse_tombstone(path: str) -> ChunkName | None:
    found = _TOMBSTONE.fullmatch(path)
    return ChunkName(bytes.fromhex(found[1]), int(found[2]), int(found[3])) if found else None


def pack(entries: Iterable[Logged]) -> bytes:
    """Fixed-width records of consecutive entries: leaf, client, capability, cursors, place."""
    return b"".join(
        _RECORD.pack(
            one.leaf_hash, one.client_id, one.auth_ref or _NO_AUTH,
            one.client_seq, one.prev_ack, one.hub_ts, one.at,
        )
        for one in entries
    )  # fmt: skip


def unpack(raw: bytes, name: ChunkName) -> list[Logged]:
    count = name.end_seq - name.start_seq + 1
    if len(raw) != count * _RECORD.size:
        raise Malformed(f"{len(raw)} bytes where {count} records of {_RECORD.size} are due")
    return [
        Logged(seq, at, hub_ts, client, client_seq, ack, None if auth == _NO_AUTH else auth, leaf)
        for seq, (leaf, client, auth, client_seq, ack, hub_ts, at) in enumerate(
            _RECORD.iter_unpack(raw), name.start_seq
        )
    ]


def _stem(name: ChunkName) -> str:
    return chunk(name).removeprefix("log/chunk-").removesuffix(".log")
