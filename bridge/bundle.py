"""The export bundle: a run of one stream's events with the evidence for them (AGB0 4.4).

A bundle is the CBOR array [header, events, proof]. ``bundle_id`` covers all three, but for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from veen.errors import Malformed
from veen.limits import Limits
from veen.receipt import Receipt
from veen.record_event import RecordEvent
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.schema import Bytes32, Version
from veen.stream import stream_id
from veen.wire import WireArray, WireMap

TAG: Final = "veen/agb0-bundle"
PARTS_HEAD: Final = b"\x83"
"""The head of an array of three."""

MAX_HEADER_BYTES: Final = 1 << 20
MAX_PROOF_BYTES: Final = 8192
_AROUND_MSG: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """What a reader is prepared to go through; memory does not grow with any of it."""

    max_bytes: int = 1 << 36
    max_events: int = 1 << 26
    max_event_bytes: int = Limits().max_msg_bytes + _AROUND_MSG


@dataclass(frozen=True, slots=True, kw_only=True)
class Header(WireMap):
    """Times are the hub's, in seconds, of the first and the last event."""

    ver: Version = 1
    bundle_id: Bytes32 | None = None
    source_hub_id: Bytes32
    source_profile_id: Bytes32
    export_stream_id: Bytes32
    export_stream: str
    export_seq_from: int
    export_seq_to: int
    export_time_from: int
    export_time_to: int
    export_checkpoint: RecorderCheckpoint

    def rule(self) -> None:
        if not 1 <= self.export_seq_from <= self.export_seq_to:
            raise Malformed(f"a bundle of {self.export_seq_from} to {self.export_seq_to}")
        if self.export_stream_id != stream_id(self.export_stream):
            raise Malformed("export_stream_id is not that of the stream's name")
        if self.source_profile_id != self.export_checkpoint.profile_id:
            raise Malformed("source_profile_id is not that of the checkpoint")

    @property
    def count(self) -> int:
        return self.export_seq_to - self.export_seq_from + 1

    def unnamed(self) -> bytes:
        """The encoding without bundle_id, as bundle_id covers it."""
        return replace(self, bundle_id=None).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(WireArray):
    """What is told of an event beside it; event_time is in milliseconds, hub time in seconds."""

    subject_id: str
    principal_id: Bytes32
    event_type: str
    event_time: int
    hub_commit_time: int
    origin: str

    @classmethod
    def of(cls, event: RecordEvent, receipt: Receipt) -> Metadata:
        return cls(
            subject_id=event.subject_id,
            principal_id=event.principal_id,
            event_type=event.event_type,
            event_time=event.event_time,
            hub_commit_time=receipt.hub_ts,
            origin=event.origin,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleEvent(WireArray):
    """One event: the bytes of its MSG and its RECEIPT as the hub has them.

    ``metadata`` is null where the exporter could not or need not read the body. ``body_key``
    discloses the body, so that the other zone reads it without any key of this one.
    """

    payload: bytes
    metadata: Metadata | None
    receipt: bytes
    body_key: Bytes32 | None = None
