"""Where each file of a hub's log lives, from its contents alone (spec 4.8.3)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

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


class ChunkName(NamedTuple):
    label: bytes
    start_seq: int
    end_seq: int


class OpenChunkName(NamedTuple):
    label: bytes
    start_seq: int


class CheckpointName(NamedTuple):
    label: bytes
    upto_seq: int


class RecorderName(NamedTuple):
    """By time, and by the beginning of its checkpoint_id."""

    created_at: int
    id_start: bytes

    @classmethod
    def of(cls, created_at: int, checkpoint_id: bytes) -> RecorderName:
        return cls(created_at, checkpoint_id[:_ID_BYTES])


def chunk(name: ChunkName) -> str:
    return f"{_chunk_stem(name)}.log"


def summary(name: ChunkName) -> str:
    return f"{_chunk_stem(name)}.summary"


def open_chunk(name: OpenChunkName) -> str:
    return f"log/chunk-{name.label.hex()}-{_seq(name.start_seq)}.open"


def peaks(label: bytes, upto_seq: int) -> str:
    return f"log/peaks-{label.hex()}-{_seq(upto_seq)}.cbor"


def checkpoint(label: bytes, upto_seq: int) -> str:
    return f"log/checkpoint-{label.hex()}-{_seq(upto_seq)}.cbor"


def checkpoint_index(label: bytes) -> str:
    return f"log/checkpoint-index-{label.hex()}.cbor"


def parse_chunk(path: str) -> ChunkName | None:
    """The chunk that a path names, or None when it names something else."""
    found = _CHUNK.fullmatch(path)
    return ChunkName(bytes.fromhex(found[1]), int(found[2]), int(found[3])) if found else None


def parse_open_chunk(path: str) -> OpenChunkName | None:
    found = _OPEN_CHUNK.fullmatch(path)
    return OpenChunkName(bytes.fromhex(found[1]), int(found[2])) if found else None


def parse_checkpoint(path: str) -> CheckpointName | None:
    """The checkpoint that a path names, or None when it names something else."""
    found = _CHECKPOINT.fullmatch(path)
    return CheckpointName(bytes.fromhex(found[1]), int(found[2])) if found else None


def recorder_checkpoint(name: RecorderName) -> str:
    return f"{RECORDER}/checkpoint-{_seq(name.created_at)}-{name.id_start.hex()}.cbor"


def parse_recorder_checkpoint(path: str) -> RecorderName | None:
    """The recorder checkpoint that a path names, or None when it names something else."""
    found = _RECORDER.fullmatch(path)
    return RecorderName(int(found[1]), bytes.fromhex(found[2])) if found else None


def _chunk_stem(name: ChunkName) -> str:
    return f"log/chunk-{name.label.hex()}-{_seq(name.start_seq)}-{_seq(name.end_seq)}"


def _seq(seq: int) -> str:
    return f"{seq:0{SEQ_DIGITS}d}"
