"""The checkpoint index of a label: upto_seq to root, chunk and peaks (spec 4.8.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veen import cbor
from veen.errors import Malformed
from veen.schema import Bytes32
from veen.wire import WireArray


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef(WireArray):
    """What stands on disk for one checkpoint: its root, the chunk that it ends, its peaks."""

    mmr_root: Bytes32
    start_seq: int
    end_seq: int
    peaks_ref: str

    def rule(self) -> None:
        if not 1 <= self.start_seq <= self.end_seq:
            raise Malformed(f"a checkpoint of the chunk from {self.start_seq} to {self.end_seq}")


def encode(index: Mapping[int, CheckpointRef]) -> bytes:
    """The map upto_seq -> reference, by ascending upto_seq."""
    if 0 in index:
        raise Malformed("no checkpoint stands at stream_seq 0")
    return cbor.encode({upto: index[upto].plain() for upto in sorted(index)})


def decode(raw: bytes) -> dict[int, CheckpointRef]:
    count, at = cbor.mapping(raw, 0)
    index: dict[int, CheckpointRef] = {}
    last = 0
    for _ in range(count):
        upto, at = cbor.uint(raw, at)
        if upto <= last:
            raise Malformed(f"checkpoint index out of order at {upto}")
        index[upto], at = CheckpointRef.read(raw, at)
        index[upto].check()
        last = upto
    cbor.finish(raw, at)
    return index
