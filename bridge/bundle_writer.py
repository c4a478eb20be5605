"""Writing a bundle event by event: the same range and checkpoint give the same bytes (AGB0 4.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import BinaryIO, Final

from bridge.bundle import MAX_HEADER_BYTES, PARTS_HEAD, TAG, BundleEvent, Header
from veen import cbor
from veen.digest import Hasher
from veen.errors import Malformed, WrongSize
from veen.range_proof import RangeProof
from veen.receipt import Receipt

_ID_AT: Final = 7
"""Where bundle_id stands: behind the heads of array and map, the version, its key and its head."""
_NO_ID: Final = bytes(32)


def write_bundle(
    file: BinaryIO, header: Header, events: Iterable[BundleEvent], proof: RangeProof
) -> Header:
    """Write a bundle to an empty file that can be sought; the header with its bundle_id.

    ``header`` has every field but bundle_id. Events that are not those it announces are refused,
    since whoever imports would refuse them.
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
    """Refuse parts that do not speak of the same events."""
    end = header.export_checkpoint.end(header.export_stream)
    if end is None or end.last_seq < header.export_seq_to:
        raise Malformed(
            f"the checkpoint does not reach event {header.export_seq_to} of {header.export_stream};"
            " export up to its end, or take a newer one"
        )
    due = (header.export_seq_from, header.export_seq_to, end.last_seq)
    if (proof.from_seq, proof.to_seq, proof.size) != due:
        raise Malformed(f"a proof of {proof.from_seq} to {proof.to_seq} of {proof.size}")
    if len(_named(header, _NO_ID).encode()) > MAX_HEADER_BYTES:
        raise WrongSize(f"the header of a bundle has at most {MAX_HEADER_BYTES} bytes")


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
            f"the events end at {seq} and hub time {hub_ts}, not at {header.export_seq_to}"
            f" and {header.export_time_to}"
        )
    yield proof.encode()


def _verify_place(event: BundleEvent, seq: int, header: Header) -> int:
    receipt = Receipt.decode(event.receipt)
    if receipt.stream_seq != seq:
        raise Malformed(f"event {receipt.stream_seq} where event {seq} is due")
    if seq == header.export_seq_from and receipt.hub_ts != header.export_time_from:
        raise Malformed(f"event {seq} is of hub time {receipt.hub_ts}, not export_time_from")
    return receipt.hub_ts


def array_head(count: int) -> bytes:
    """The head of an array, for a count that may be large."""
    head = cbor.dump(count)
    return bytes([head[0] | cbor.ARRAY << 5]) + head[1:]
