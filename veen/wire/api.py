"""Requests and responses of a hub: data plane, /tooling and health routes (spec 10.4, 10.6).

A MSG or RECEIPT inside an envelope is kept as the bytes of its item, so the envelope and its
content fail separately, each with its own error. ``ver`` may be left out of /tooling requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.errors import Malformed
from veen.hub_identity import HubIdentity, HubKey
from veen.label import Profile
from veen.proofs import InclusionProof, MmrProof, RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire import cbor
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Bytes64, Detail, RawItem, Version


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
            raise Malformed("batch result: expected a receipt or an error, got both or neither")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResponse(WireMap):
    ver: Version = 1
    results: tuple[BatchResult, ...]
    server_version: str | None = None


def encode_receipt(receipt: bytes, server_version: str) -> bytes:
    """The bytes of a SubmitResponse around the bytes of a receipt."""
    return b"\xa3\x01\x01\x02" + receipt + b"\x03" + cbor.encode(server_version)


def encode_receipts(receipts: Sequence[bytes], server_version: str) -> bytes:
    """The bytes of a BatchResponse around the bytes of receipts."""
    head = b"\xa3\x01\x01\x02" + cbor.array_head(len(receipts))
    results = b"".join(b"\xa1\x01" + receipt for receipt in receipts)
    return head + results + b"\x03" + cbor.dump(server_version)


def encode_messages(messages: Sequence[bytes]) -> bytes:
    """The bytes of a BatchRequest around the bytes of messages."""
    return b"\xa2\x01\x01\x02" + cbor.array_head(len(messages)) + b"".join(messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizeResponse(WireMap):
    """``receipt`` is that of the control entry; its hub_ts is issued_at."""

    ver: Version = 1
    auth_ref: Bytes32
    issued_at: int
    expires_at: int
    receipt: Receipt
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileStatus(WireMap):
    profile_id: Bytes32
    profile: Profile
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRegistry(WireMap):
    """The limits of spec 14.1, by their names there."""

    max_msg_bytes: int
    max_hdr_bytes: int
    max_body_bytes: int
    max_attachments_per_msg: int
    max_attachment_bytes: int
    max_chunk_bytes: int
    max_checkpoint_interval: int
    max_cap_rate_per_sec: int
    max_cap_rate_burst: int
    max_epoch_skew_sec: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusResponse(WireMap):
    """``last_stream_seq``, ``peaks_count`` and ``last_mmr_root`` are of the latest label."""

    ver: Version = 1
    server_version: str
    role: str
    hub_id: Bytes32
    hub_pk: Bytes32
    hub_keys: tuple[HubKey, ...]
    profile_ids: tuple[Bytes32, ...]
    profiles: tuple[ProfileStatus, ...]
    epoch: int
    hub_ts: int
    admission: str
    reads: str
    stream_scoping: str
    features: tuple[str, ...]
    limits: LimitRegistry
    uptime_sec: int
    labels: int
    peaks_count: int
    last_stream_seq: int
    last_hub_ts: int
    anchoring: str
    identity_sig: Bytes64
    last_label: Bytes32 | None = None
    last_mmr_root: Bytes32 | None = None

    def identity(self) -> HubIdentity:
        """The identity of the hub, whose chain of keys is verified."""
        claimed = HubIdentity(hub_id=self.hub_id, hub_keys=self.hub_keys, anchoring=self.anchoring)
        identity = HubIdentity.decode(claimed.encode())
        identity.verify(self.identity_sig)
        return identity


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityQuery(WireMap):
    auth_ref: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityResponse(WireMap):
    """A capability the hub knows, and its own time to compare expires_at with."""

    ver: Version = 1
    token: CapToken
    issued_at: int
    expires_at: int
    hub_ts: int
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelInfo(WireMap):
    label: Bytes32
    epoch: int
    last_stream_seq: int
    last_hub_ts: int
    closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo(WireMap):
    name: str
    stream_id: Bytes32
    profile_id: Bytes32
    epoch_sec: int
    pad_block: int
    labels: tuple[LabelInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsResponse(WireMap):
    ver: Version = 1
    streams: tuple[StreamInfo, ...]
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest(WireMap):
    ver: Version | None = None
    name: str
    epoch_sec: int | None = None
    pad_block: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InclusionRequest(WireMap):
    ver: Version | None = None
    label: Bytes32
    stream_seq: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InclusionResponse(WireMap):
    ver: Version = 1
    proof: InclusionProof
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyRequest(WireMap):
    ver: Version | None = None
    label: Bytes32
    old_size: int
    new_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProofRequest(WireMap):
    ver: Version | None = None
    label: Bytes32
    from_seq: int
    to_seq: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProofResponse(WireMap):
    ver: Version = 1
    proof: RangeProof
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLatestQuery(WireMap):
    label: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRangeQuery(WireMap):
    label: Bytes32
    from_seq: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRangeResponse(WireMap):
    """``next_from_seq`` is there while later checkpoints may be."""

    ver: Version = 1
    checkpoints: tuple[Checkpoint, ...]
    next_from_seq: int | None = None
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderCheckpointRequest(WireMap):
    """``force`` asks for a new document where no stream has moved since the last one."""

    ver: Version | None = None
    profile_id: Bytes32
    force: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderCheckpointResponse(WireMap):
    ver: Version = 1
    checkpoint: RecorderCheckpoint
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderCheckpointsQuery(WireMap):
    """Documents made later than ``after``."""

    after: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderCheckpointsResponse(WireMap):
    """``next_after`` is there while later documents may be."""

    ver: Version = 1
    checkpoints: tuple[RecorderCheckpoint, ...]
    next_after: int | None = None
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocateRequest(WireMap):
    """By ``leaf_hash``, or by ``label`` and ``hub_ts``."""

    ver: Version | None = None
    leaf_hash: Bytes32 | None = None
    label: Bytes32 | None = None
    hub_ts: int | None = None

    def rule(self) -> None:
        by_time = (self.label is not None, self.hub_ts is not None)
        if by_time != ((self.leaf_hash is None,) * 2):
            raise Malformed("expected leaf_hash, or label and hub_ts, got another combination")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPlace(WireMap):
    label: Bytes32
    stream_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocateResponse(WireMap):
    """Every place of the leaf that may be read, or the first place not before hub_ts."""

    ver: Version = 1
    places: tuple[EntryPlace, ...]
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivocationReport(WireMap):
    ver: Version | None = None
    first: Receipt
    second: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivocationResponse(WireMap):
    ver: Version = 1
    evidence_id: Bytes32
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthResponse(WireMap):
    """OBS0.3, of the label with the latest entry; before the first entry there is no root."""

    ok: bool
    profile_id: Bytes32
    peaks_count: int
    last_stream_seq: int
    last_mmr_root: Bytes32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyResponse(WireMap):
    """``disk_days_left`` at the rate of the last day; without it nothing is used up, or a day has
    not been seen yet. ``hub_time_ahead_sec`` is for how long hub time is still held."""

    ok: bool
    hub_ts: int
    disk_free_bytes: int | None = None
    disk_days_left: int | None = None
    warnings: tuple[str, ...] | None = None
    hub_time_ahead_sec: int | None = None
