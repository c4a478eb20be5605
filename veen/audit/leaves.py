"""What stays of a pruned chunk beside its tombstone: one record of fixed width an entry."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from veen.errors import Malformed
from veen.layout import ChunkName, chunk

_RECORD: Final = struct.Struct(">32s32s32sQQQQ")
_NO_AUTH: Final = bytes(32)
_TOMBSTONE: Final = re.compile(r"log/tombstone-([0-9a-f]{64})-([0-9]{20})-([0-9]{20})\.cbor")


class LeafRecord(NamedTuple):
    leaf_hash: bytes
    client_id: bytes
    auth_ref: bytes | None
    client_seq: int
    prev_ack: int
    hub_ts: int
    at: int


def tombstone(name: ChunkName) -> str:
    return f"log/tombstone-{_stem(name)}.cbor"


def leaves(name: ChunkName) -> str:
    return f"log/leaves-{_stem(name)}.bin"


def parse_tombstone(path: str) -> ChunkName | None:
    found = _TOMBSTONE.fullmatch(path)
    return ChunkName(bytes.fromhex(found[1]), int(found[2]), int(found[3])) if found else None


def pack(records: Iterable[LeafRecord]) -> bytes:
    return b"".join(
        _RECORD.pack(one.leaf_hash, one.client_id, one.auth_ref or _NO_AUTH, *one[3:])
        for one in records
    )


def unpack(raw: bytes, name: ChunkName) -> list[LeafRecord]:
    count = name.end_seq - name.start_seq + 1
    if len(raw) != count * _RECORD.size:
        raise Malformed(f"{len(raw)} bytes where {count} records of {_RECORD.size} are due")
    return [
        LeafRecord(leaf, client, None if auth == _NO_AUTH else auth, *rest)
        for leaf, client, auth, *rest in _RECORD.iter_unpack(raw)
    ]


def _stem(name: ChunkName) -> str:
    return chunk(name).removeprefix("log/chunk-").removesuffix(".log")
