"""Reading a bundle in memory that does not grow with it: sizes first, then framing (AGB0 4.5).

The first look settles where the parts lie and what their hash is. What stands inside an event is
looked at later, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from bridge.bundle import (
    MAX_HEADER_BYTES,
    MAX_PROOF_BYTES,
    PARTS_HEAD,
    TAG,
    BundleEvent,
    BundleLimits,
    Header,
)
from bridge.refusal import Fault, Refused
from veen import cbor
from veen.digest import Hasher
from veen.errors import Malformed
from veen.range_proof import RangeProof

_BLOCK: Final = 1 << 20
_BATCH_BYTES: Final = 1 << 17


class Source(Protocol):
    """A bundle that can be read more than once; it must not change meanwhile."""

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def read(self, size: int = -1, /) -> bytes: ...


class Batch(NamedTuple):
    """Where a run of events lies."""

    offset: int
    size: int
    first_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the first look at a bundle found."""

    header: Header
    proof: RangeProof
    batches: tuple[Batch, ...]
    size: int
    digest: bytes
    """What bundle_id should be."""


def survey(source: Source, limits: BundleLimits) -> Survey:
    """Find the parts of a bundle, or refuse it for its sizes or its framing."""
    size = source.seek(0, 2)
    if size > limits.max_bytes:
        raise Refused(Fault.BUNDLE_SIZE, f"{size} bytes; {limits.max_bytes} are allowed")
    window = _Window(source, size)
    if window.take(1) != PARTS_HEAD:
        raise Refused(Fault.FRAMING, "no array of header, events and proof", offset=0)
    header = _header(window)
    digest = Hasher.tagged(TAG)
    digest.update(header.unnamed())
    batches = tuple(_batches(window, header, limits, digest))
    at = window.offset
    raw_proof = window.item(MAX_PROOF_BYTES, "the proof")
    digest.update(raw_proof)
    if window.offset != size:
        raise Refused(
            Fault.FRAMING, f"{size - window.offset} bytes follow the proof", offset=window.offset
        )
    try:
        proof = RangeProof.decode(raw_proof)
    except Malformed as error:
        raise Refused(Fault.FRAMING, f"the proof: {error}", offset=at) from error
    return Survey(header=header, proof=proof, batches=batches, size=size, digest=digest.digest())


def read_batch(source: Source, batch: Batch) -> bytes:
    """The events of a batch, one after another."""
    source.seek(batch.offset)
    raw = source.read(batch.size)
    if len(raw) != batch.size:
        raise Refused(Fault.FRAMING, "the bundle has become shorter", offset=batch.offset)
    return raw


def read_events(source: Source, found: Survey) -> Iterator[BundleEvent]:
    """The events of a bundle that has been verified, in order."""
    for batch in found.batches:
        yield from map(BundleEvent.decode, cbor.decode_sequence(read_batch(source, batch)))


def _header(window: _Window) -> Header:
    raw = window.item(MAX_HEADER_BYTES, "the header")
    try:
        header = Header.decode(raw)
    except Malformed as error:
        raise Refused(Fault.FRAMING, f"the header: {error}", offset=1) from error
    if header.bundle_id is None:
        raise Refused(Fault.FRAMING, "the header has no bundle_id", offset=1)
    return header


def _batches(
    window: _Window, header: Header, limits: BundleLimits, digest: Hasher
) -> Iterator[Batch]:
    count = _count(window, header, limits, digest)
    seq = header.export_seq_from
    while count:
        offset, first, parts, size = window.offset, seq, [], 0
        while count and size < _BATCH_BYTES:
            parts.append(window.item(limits.max_event_bytes, f"event {seq}"))
            size += len(parts[-1])
            seq, count = seq + 1, count - 1
        digest.update(b"".join(parts))
        yield Batch(offset, size, first)


def _count(window: _Window, header: Header, limits: BundleLimits, digest: Hasher) -> int:
    at = window.offset
    try:
        major, count, end = cbor.head(window.peek(9), 0)
    except Malformed as error:
        raise Refused(Fault.FRAMING, f"the events: {error}", offset=at) from error
    if major != cbor.ARRAY:
        raise Refused(Fault.FRAMING, "no array of events", offset=at)
    if count != header.count:
        raise Refused(
            Fault.COUNT, f"{count} events where the header announces {header.count}", offset=at
        )
    if count > limits.max_events:
        raise Refused(Fault.BUNDLE_SIZE, f"{count} events; {limits.max_events} are allowed")
    digest.update(window.take(end))
    return count


class _Window:
    """A stretch of the source in memory, which moves on."""

    def __init__(self, source: Source, size: int) -> None:
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
        """The bytes of one CBOR item of at most ``most`` bytes; its framing alone is checked."""
        self._fill(most)
        try:
            end = cbor.skip(self._raw, self._at)
        except Malformed:
            end = self._at + most + 1
        if end - self._at > most:
            told = f"{what} is cut short, no CBOR, or of more than {most} bytes"
            raise Refused(Fault.FRAMING, told, offset=self.offset)
        return self.take(end - self._at)

    def _fill(self, size: int) -> None:
        rest = len(self._raw) - self._at
        if rest < size and self.offset + rest < self._size:
            self._raw = self._raw[self._at :] + self._source.read(max(size - rest, _BLOCK))
            self._at = 0
