"""Requests and answers of the data plane (spec 10.4, 10.6).

A MSG or RECEIPT inside an envelope is kept as the bytes of its item: the envelope and what it
carries fail apart, each with its own error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from veen import cbor
from veen.checkpoint import Checkpoint
from veen.errors import Malformed
from veen.proof import MmrProof
from veen.receipt import Receipt
from veen.schema import Bytes32, Detail, RawItem, Version
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest(WireMap):
    ver: Version = 1
    msg: RawItem


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResponse(WireMap):
    ver: Version = 1
    receipt: Receipt
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest(WireMap):
    ver: Version = 1
    label: Bytes32
    from_seq: int
    to_seq: int | None = None
    max_items: int | None = None
    cursor: int | None = None
    with_receipts: bool | None = None
    with_mmr_proof: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamItem(WireMap):
    stream_seq: int
    msg: RawItem
    receipt: RawItem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResponse(WireMap):
    ver: Version = 1
    label: Bytes32
    from_seq: int
    to_seq: int | None = None
    items: tuple[StreamItem, ...]
    next_cursor: int | None = None
    mmr_proof: MmrProof | None = None
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptRequest(WireMap):
    ver: Version = 1
    label: Bytes32
    stream_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptResponse(WireMap):
    ver: Version = 1
    receipt: Receipt
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRequest(WireMap):
    ver: Version = 1
    label: Bytes32
    stream_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofResponse(WireMap):
    ver: Version = 1
    mmr_proof: MmrProof
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequest(WireMap):
    ver: Version = 1
    label: Bytes32
    upto_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResponse(WireMap):
    ver: Version = 1
    checkpoint: Checkpoint
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEnvelope(WireMap):
    ver: Version = 1
    code: str
    message: str
    detail: Detail | None = field(default=None, hash=False)
    retry_after: int | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest(WireMap):
    """Many messages in one request; each fails or succeeds by itself."""

    ver: Version = 1
    msgs: tuple[RawItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult(WireMap):
    """What became of one message of a batch: a receipt or an error, never both."""

    receipt: RawItem | None = None
    error: ErrorEnvelope | None = None

    def rule(self) -> None:
        if (self.receipt is None) == (self.error is None):
            raise Malformed("a batch result is a receipt or an error")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResponse(WireMap):
    ver: Version = 1
    results: tuple[BatchResult, ...]
    server_version: str | None = None


def encode_receipt(receipt: bytes, server_version: str) -> bytes:
    """The bytes of a SubmitResponse, with the receipt as it stands in the log."""
    return b"\xa3\x01\x01\x02" + receipt + b"\x03" + cbor.encode(server_version)


def encode_receipts(receipts: Sequence[bytes], server_version: str) -> bytes:
    """The bytes of a BatchResponse of nothing but receipts, each as it stands in the log."""
    head = b"\xa3\x01\x01\x02" + cbor.array_head(len(receipts))
    results = b"".join(b"\xa1\x01" + receipt for receipt in receipts)
    return head + results + b"\x03" + cbor.encode(server_version)
