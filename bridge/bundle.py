"""The export bundle: a range of one stream's events with the evidence for them (AGB0 4.4, 4.5).

A bundle is the CBOR array [header, events, proof]. ``bundle_id`` is the hash of all three, with
itself left blank. Writing is deterministic: the same range and checkpoint give the same bytes.
Reading takes constant memory: it first checks sizes and framing and hashes the parts; the events
are decoded later, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, NamedTuple, Protocol

from bridge.errors import CarrierFault, CarrierRefused
from veen.digest import Hasher
from veen.errors import Malformed, WrongSize
from veen.events import RecordEvent
from veen.label import stream_id
from veen.limits import Limits
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire import cbor
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import Bytes32, Version

TAG: Final = "veen/agb0-bundle"
PARTS_HEAD: Final = b"\x83"
"""The head of a CBOR array of three items."""

MAX_HEADER_BYTES: Final = 1 << 20
MAX_PROOF_BYTES: Final = 8192
_AROUND_MSG: Final = 4096
_BLOCK: Final = 1 << 20
_BATCH_BYTES: Final = 1 << 17
_ID_AT: Final = 7
"""The offset of bundle_id, after the heads of array and map, the version, its key and its head."""
_NO_ID: Final = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """The limits of a reader; its memory does not grow with any of them."""

    max_bytes: int = 1 << 36
    max_events: int = 1 << 26
    max_event_bytes: int = Limits().max_msg_bytes + _AROUND_MSG


@dataclass(frozen=True, slots=True, kw_only=True)
class Header(WireMap):
    """The header of a bundle; its times are hub times of the first and the last event, in
    seconds.
    """

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
            raise Malformed(f"expected a range, got {self.export_seq_from} to {self.export_seq_to}")
        if self.export_stream_id != stream_id(self.export_stream):
            raise Malformed("export_stream_id is not the hash of export_stream")
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
    """The metadata of an event in the clear; event_time is in milliseconds, hub time in seconds."""

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
    """An event: the bytes of its MSG and its RECEIPT as stored by the hub.

    ``metadata`` is null if the exporter cannot or need not read the body. ``body_key`` discloses
    the body, so that the importing zone can read it without any key of this zone.
    """

    payload: bytes
    metadata: Metadata | None
    receipt: bytes
    body_key: Bytes32 | None = None


class BundleSource(Protocol):
    """A bundle that can be read more than once; it must not change meanwhile."""

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def read(self, size: int = -1, /) -> bytes: ...


class EventBatch(NamedTuple):
    """The position of consecutive events in a bundle."""

    offset: int
    size: int
    first_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The structure of a bundle, before its events are decoded."""

    header: Header
    proof: RangeProof
    batches: tuple[EventBatch, ...]
    size: int
    digest: bytes
    """The expected bundle_id."""


def survey(source: BundleSource, limits: BundleLimits) -> Survey:
    """Locate the parts of a bundle, or refuse it for its sizes or its framing."""
    size = source.seek(0, 2)
    if size > limits.max_bytes:
        raise CarrierRefused(
            CarrierFault.BUNDLE_SIZE, f"expected at most {limits.max_bytes} bytes, got {size}"
        )
    window = _Window(source, size)
    if window.take(1) != PARTS_HEAD:
        raise CarrierRefused(
            CarrierFault.FRAMING, "expected an array of header, events and proof", offset=0
        )
    header = _header(window)
    digest = Hasher.tagged(TAG)
    digest.update(header.unnamed())
    batches = tuple(_batches(window, header, limits, digest))
    at = window.offset
    raw_proof = window.item(MAX_PROOF_BYTES, "the proof")
    digest.update(raw_proof)
    if window.offset != size:
        raise CarrierRefused(
            CarrierFault.FRAMING,
            f"expected the end after the proof, got {size - window.offset} more bytes",
            offset=window.offset,
        )
    try:
        proof = RangeProof.decode(raw_proof)
    except Malformed as error:
        raise CarrierRefused(CarrierFault.FRAMING, f"the proof: {error}", offset=at) from error
    return Survey(header=header, proof=proof, batches=batches, size=size, digest=digest.digest())


def read_batch(source: BundleSource, batch: EventBatch) -> bytes:
    """The events of a batch, one after another."""
    source.seek(batch.offset)
    raw = source.read(batch.size)
    if len(raw) != batch.size:
        raise CarrierRefused(
            CarrierFault.FRAMING,
            f"expected {batch.size} bytes, got {len(raw)}: the file became shorter",
            offset=batch.offset,
        )
    return raw


def read_events(source: BundleSource, survey: Survey) -> Iterator[BundleEvent]:
    """The events of a bundle that has been verified, in order."""
    for batch in survey.batches:
        yield from map(BundleEvent.decode, cbor.decode_sequence(read_batch(source, batch)))


def _header(window: _Window) -> Header:
    raw = window.item(MAX_HEADER_BYTES, "the header")
    try:
        header = Header.decode(raw)
    except Malformed as error:
        raise CarrierRefused(CarrierFault.FRAMING, f"the header: {error}", offset=1) from error
    if header.bundle_id is None:
        raise CarrierRefused(CarrierFault.FRAMING, "the header has no bundle_id", offset=1)
    return header


def _batches(
    window: _Window, header: Header, limits: BundleLimits, digest: Hasher
) -> Iterator[EventBatch]:
    count = _count(window, header, limits, digest)
    seq = header.export_seq_from
    while count:
        offset, first, parts, size = window.offset, seq, [], 0
        while count and size < _BATCH_BYTES:
            parts.append(window.item(limits.max_event_bytes, f"event {seq}"))
            size += len(parts[-1])
            seq, count = seq + 1, count - 1
        digest.update(b"".join(parts))
        yield EventBatch(offset, size, first)


def _count(window: _Window, header: Header, limits: BundleLimits, digest: Hasher) -> int:
    at = window.offset
    try:
        major, count, end = cbor.head(window.peek(9), 0)
    except Malformed as error:
        raise CarrierRefused(CarrierFault.FRAMING, f"the events: {error}", offset=at) from error
    if major != cbor.ARRAY:
        raise CarrierRefused(CarrierFault.FRAMING, "expected an array of events", offset=at)
    if count != header.count:
        raise CarrierRefused(
            CarrierFault.COUNT,
            f"expected {header.count} events, as in the header, got {count}",
            offset=at,
        )
    if count > limits.max_events:
        raise CarrierRefused(
            CarrierFault.BUNDLE_SIZE, f"expected at most {limits.max_events} events, got {count}"
        )
    digest.update(window.take(end))
    return count


class _Window:
    """A sliding window over the source."""

    def __init__(self, source: BundleSource, size: int) -> None:
        source.seek(0)
        self._source = source
        self._size = size
        self._raw = b""
        self._at = 0
        self.offset = 0

    def peek(self, size: int) -> bytes:
        self._fill(size)
        return self._raw[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        taken = self.peek(size)
        self._at += len(taken)
        self.offset += len(taken)
        return taken

    def item(self, most: int, what: str) -> bytes:
        """The bytes of a CBOR item of at most ``most`` bytes; only its framing is checked."""
        self._fill(most)
        try:
            end = cbor.skip(self._raw, self._at)
        except Malformed:
            end = self._at + most + 1
        if end - self._at > most:
            detail = f"{what} is cut short, no CBOR, or of more than {most} bytes"
            raise CarrierRefused(CarrierFault.FRAMING, detail, offset=self.offset)
        return self.take(end - self._at)

    def _fill(self, size: int) -> None:
        rest = len(self._raw) - self._at
        if rest < size and self.offset + rest < self._size:
            self._raw = self._raw[self._at :] + self._source.read(max(size - rest, _BLOCK))
            self._at = 0


def write_bundle(
    file: BinaryIO, header: Header, events: Iterable[BundleEvent], proof: RangeProof
) -> Header:
    """Write a bundle to an empty, seekable file; return the header with its bundle_id.

    ``header`` has every field except bundle_id. Events other than those it announces are refused,
    since the importer would refuse them.
    """
    verify_parts(header, proof)
    digest = Hasher.tagged(TAG)
    digest.update(header.unnamed())
    file.write(PARTS_HEAD + _named(header, _NO_ID).encode())
    for part in _parts(header, events, proof):
        digest.update(part)
        file.write(part)
    named = _named(header, digest.digest())
    file.seek(_ID_AT)
    file.write(digest.digest())
    file.seek(0, 2)
    return named


def verify_parts(header: Header, proof: RangeProof) -> None:
    """Refuse a header and a proof that are not about the same events."""
    end = header.export_checkpoint.end(header.export_stream)
    if end is None or end.last_seq < header.export_seq_to:
        raise Malformed(
            f"the checkpoint does not reach event {header.export_seq_to} of {header.export_stream};"
            " export up to its end, or use a newer checkpoint"
        )
    expected = (header.export_seq_from, header.export_seq_to, end.last_seq)
    covered = (proof.from_seq, proof.to_seq, proof.size)
    if covered != expected:
        raise Malformed(f"the proof: expected (from, to, size) {expected}, got {covered}")
    if len(_named(header, _NO_ID).encode()) > MAX_HEADER_BYTES:
        raise WrongSize(f"the header: expected at most {MAX_HEADER_BYTES} bytes, got more")


def _named(header: Header, bundle_id: bytes) -> Header:
    return replace(header, bundle_id=bundle_id)


def _parts(header: Header, events: Iterable[BundleEvent], proof: RangeProof) -> Iterable[bytes]:
    yield array_head(header.count)
    seq, hub_ts = header.export_seq_from - 1, header.export_time_from
    for seq, event in enumerate(events, header.export_seq_from):
        hub_ts = _verify_place(event, seq, header)
        yield event.encode()
    if seq != header.export_seq_to or hub_ts != header.export_time_to:
        raise Malformed(
            f"the events: expected an end at {header.export_seq_to} and hub time "
            f"{header.export_time_to}, got {seq} and {hub_ts}"
        )
    yield proof.encode()


def _verify_place(event: BundleEvent, seq: int, header: Header) -> int:
    receipt = Receipt.decode(event.receipt)
    if receipt.stream_seq != seq:
        raise Malformed(f"expected event {seq}, got event {receipt.stream_seq}")
    if seq == header.export_seq_from and receipt.hub_ts != header.export_time_from:
        raise Malformed(
            f"event {seq}: expected hub time {header.export_time_from} (export_time_from), got "
            f"{receipt.hub_ts}"
        )
    return receipt.hub_ts


def array_head(count: int) -> bytes:
    """The CBOR head of an array of any count."""
    head = cbor.dump(count)
    return bytes([head[0] | cbor.ARRAY << 5]) + head[1:]
