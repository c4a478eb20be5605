"""The names of the files of a hub's log (spec 4.8.3), and the leaf records of pruned chunks.

A pruned chunk keeps a record of fixed width for each entry.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from veen.errors import Malformed

SEQ_DIGITS: Final = 20
IDENTITY: Final = "hub-identity.cbor"
IDENTITY_SIG: Final = "hub-identity.sig"
KEY_MAP: Final = "hub-key-map.cbor"
CHECKPOINT_BINDING: Final = "checkpoint-binding.cborseq"
RECORDER: Final = "recorder"

_CHUNK: Final = re.compile(r"log/chunk-([0-9a-f]{64})-([0-9]{20})-([0-9]{20})\.log")
_OPEN_CHUNK: Final = re.compile(r"log/chunk-([0-9a-f]{64})-([0-9]{20})\.open")

_CHECKPOINT: Final = re.compile(r"log/checkpoint-([0-9a-f]{64})-([0-9]{20})\.cbor")
_RECORDER: Final = re.compile(r"recorder/checkpoint-([0-9]{20})-([0-9a-f]{16})\.cbor")
_ID_BYTES: Final = 8
_RECORD: Final = struct.Struct(">32s32s32sQQQQ")
_NO_AUTH: Final = bytes(32)
_TOMBSTONE: Final = re.compile(r"log/tombstone-([0-9a-f]{64})-([0-9]{20})-([0-9]{20})\.cbor")


class ChunkName(NamedTuple):
    label: bytes
    start_seq: int
    end_seq: int


class OpenChunkName(NamedTuple):
    label: bytes
    start_seq: int


class CheckpointFileName(NamedTuple):
    label: bytes
    upto_seq: int


class RecorderName(NamedTuple):
    """The name of a recorder checkpoint: its time and the start of its checkpoint_id."""

    created_at: int
    id_start: bytes

    @classmethod
    def of(cls, created_at: int, checkpoint_id: bytes) -> RecorderName:
        return cls(created_at, checkpoint_id[:_ID_BYTES])


def chunk(name: ChunkName) -> str:
    return f"log/chunk-{_stem(name)}.log"


def summary(name: ChunkName) -> str:
    return f"log/chunk-{_stem(name)}.summary"


def open_chunk(name: OpenChunkName) -> str:
    return f"log/chunk-{name.label.hex()}-{_seq(name.start_seq)}.open"


def peaks(label: bytes, upto_seq: int) -> str:
    return f"log/peaks-{label.hex()}-{_seq(upto_seq)}.cbor"


def checkpoint(label: bytes, upto_seq: int) -> str:
    return f"log/checkpoint-{label.hex()}-{_seq(upto_seq)}.cbor"


def checkpoint_index(label: bytes) -> str:
    return f"log/checkpoint-index-{label.hex()}.cbor"


def late_checkpoints(label: bytes) -> str:
    """The lines of the checkpoint index that are not merged into it yet."""
    return f"log/checkpoint-index-{label.hex()}.late"


def parse_chunk(path: str) -> ChunkName | None:
    """The chunk that a path names, or None when it names something else."""
    match = _CHUNK.fullmatch(path)
    return ChunkName(bytes.fromhex(match[1]), int(match[2]), int(match[3])) if match else None


def parse_open_chunk(path: str) -> OpenChunkName | None:
    match = _OPEN_CHUNK.fullmatch(path)
    return OpenChunkName(bytes.fromhex(match[1]), int(match[2])) if match else None


def parse_checkpoint(path: str) -> CheckpointFileName | None:
    """The checkpoint that a path names, or None when it names something else."""
    match = _CHECKPOINT.fullmatch(path)
    return CheckpointFileName(bytes.fromhex(match[1]), int(match[2])) if match else None


def recorder_checkpoint(name: RecorderName) -> str:
    return f"{RECORDER}/checkpoint-{_seq(name.created_at)}-{name.id_start.hex()}.cbor"


def parse_recorder_checkpoint(path: str) -> RecorderName | None:
    """The recorder checkpoint that a path names, or None when it names something else."""
    match = _RECORDER.fullmatch(path)
    return RecorderName(int(match[1]), bytes.fromhex(match[2])) if match else None


def _seq(seq: int) -> str:
    return f"{seq:0{SEQ_DIGITS}d}"


class LeafRecord(NamedTuple):
    leaf_hash: bytes
    client_id: bytes
    auth_ref: bytes | None
    client_seq: int
    prev_ack: int
    hub_ts: int
    at: int


def tombstone_file(name: ChunkName) -> str:
    return f"log/tombstone-{_stem(name)}.cbor"


def leaf_file(name: ChunkName) -> str:
    return f"log/leaves-{_stem(name)}.bin"


def parse_tombstone(path: str) -> ChunkName | None:
    match = _TOMBSTONE.fullmatch(path)
    return ChunkName(bytes.fromhex(match[1]), int(match[2]), int(match[3])) if match else None


def pack_leaves(records: Iterable[LeafRecord]) -> bytes:
    return b"".join(
        _RECORD.pack(record.leaf_hash, record.client_id, record.auth_ref or _NO_AUTH, *record[3:])
        for record in records
    )


def unpack_leaves(raw: bytes, name: ChunkName) -> list[LeafRecord]:
    count = name.end_seq - name.start_seq + 1
    if len(raw) != count * _RECORD.size:
        raise Malformed(f"expected {count} records of {_RECORD.size} bytes, got {len(raw)} bytes")
    return [
        LeafRecord(leaf, client, None if auth == _NO_AUTH else auth, *rest)
        for leaf, client, auth, *rest in _RECORD.iter_unpack(raw)
    ]


def _stem(name: ChunkName) -> str:
    return f"{name.label.hex()}-{_seq(name.start_seq)}-{_seq(name.end_seq)}"
