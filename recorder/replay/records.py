"""The records of a replay output: the plan, then proofs and items in a fixed order.

An item is a recorder event with its position, or a message that is not an event and the reason. The
cursor tracks how far an output has come and verifies the order of its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from recorder.replay.plan import ReplayPlan, ReplaySource, StreamRange, at
from veen.client.log_head import Pair
from veen.errors import Unopenable, Untrusted
from veen.events import IMPORT_SCHEMA as IMPORTED
from veen.events import (
    RECORD_SCHEMA,
    EventFault,
    ImportedEvent,
    ImportFault,
    NotAnEvent,
    NotImported,
    RecordEvent,
    is_import,
    read_event,
    read_imported,
)
from veen.label import DEFAULT_PROFILE
from veen.msg import Msg
from veen.payload import open_body
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.wire.objects import WireMap

READER_FAULTS = (EventFault.UNOPENED, EventFault.OTHER_SCHEMA)
"""Faults that only the reader's private key can show: the schema is in the sealed header."""


class ItemKind(Enum):
    EVENT = "event"
    OTHER = "other"
    RECEIPT = "receipt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A message of a replay; ``fault`` says why it is not an event. Without ``event`` and ``fault``
    it was not opened.

    ``body_key`` opens the body of this message. In an import stream ``event`` is the origin's, and
    ``imported`` has its position at the origin.
    """

    stream: str
    msg: Msg
    receipt: Receipt
    proven: bool
    event: RecordEvent | None = None
    fault: NotAnEvent | None = None
    body_key: bytes | None = None
    imported: ImportedEvent | None = None

    @property
    def kind(self) -> ItemKind:
        if self.event is not None:
            return ItemKind.EVENT
        return ItemKind.RECEIPT if self.fault is None else ItemKind.OTHER

    @property
    def seq(self) -> int:
        return self.receipt.stream_seq

    @property
    def receipt_id(self) -> str:
        return f"rcpt-{self.receipt.leaf_hash.hex()}"

    @property
    def order(self) -> tuple[int, str, int]:
        """The sort key over all streams (I1)."""
        return self.receipt.hub_ts, self.stream, self.seq


def sealed_item(stream: str, pair: Pair, *, proven: bool) -> Item:
    """A message that is not opened."""
    return Item(stream=stream, msg=pair.msg, receipt=pair.receipt, proven=proven)


def opened_item(source: ReplaySource, stream: str, pair: Pair, *, proven: bool) -> Item:
    """A message with what the reader's keys open; none is left out."""
    try:
        opened = source.open_pair(pair)
    except Unopenable as error:
        fault = NotAnEvent(EventFault.UNOPENED, str(error))
        return _item(stream, pair, proven=proven, fault=fault)
    schema = opened.header.schema
    return _read(stream, pair, schema, opened.body, opened.body_key, proven=proven)


def derived_item(
    stream: str, pair: Pair, body_key: bytes, fault: NotAnEvent | None, *, proven: bool
) -> Item:
    """The item of a message, given its body key but not the reader's private key."""
    # A body key of an imported event means that it was opened, so what is missing is the key to
    # the origin's message, which can be derived from the body.
    is_derivable = is_import(stream) and fault is not None and fault.fault is EventFault.UNOPENED
    if fault is not None and fault.fault in READER_FAULTS and not is_derivable:
        return _item(stream, pair, proven=proven, fault=fault, body_key=body_key)
    body = open_body(body_key=body_key, msg=pair.msg, profile=DEFAULT_PROFILE)
    schema = IMPORTED if is_import(stream) else RECORD_SCHEMA
    return _read(stream, pair, schema, body, body_key, proven=proven)


def _read(
    stream: str, pair: Pair, schema: bytes, body: bytes, body_key: bytes, *, proven: bool
) -> Item:
    imported = None
    try:
        if is_import(stream):
            imported = _imported(schema, body, pair.msg.client_id)
            event = imported.origin_event()
        else:
            event = read_event(schema, body, pair.msg.client_id)
    except NotAnEvent as fault:
        return _item(stream, pair, proven=proven, fault=fault, body_key=body_key, imported=imported)
    return _item(stream, pair, proven=proven, event=event, body_key=body_key, imported=imported)


def _imported(schema: bytes, body: bytes, client_id: bytes) -> ImportedEvent:
    """Decode an imported event; its faults become those of recorder events."""
    try:
        return read_imported(schema, body, client_id)
    except NotImported as error:
        if error.fault is ImportFault.OTHER_SCHEMA:
            raise NotAnEvent(EventFault.OTHER_SCHEMA, schema.hex()) from error
        raise NotAnEvent(EventFault.MALFORMED, str(error)) from error


def _item(
    stream: str,
    pair: Pair,
    *,
    proven: bool,
    event: RecordEvent | None = None,
    fault: NotAnEvent | None = None,
    body_key: bytes | None = None,
    imported: ImportedEvent | None = None,
) -> Item:
    return Item(
        stream=stream,
        msg=pair.msg,
        receipt=pair.receipt,
        proven=proven,
        event=event,
        fault=fault,
        body_key=body_key,
        imported=imported,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(WireMap):
    """A proof of the next items of a stream against the checkpoint."""

    stream: str
    proof: RangeProof


Record = ReplayPlan | Proof | Item


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenItem:
    """An item read from an output: the evidence, not what it states of itself."""

    stream: str
    receipt: Receipt
    proven: bool
    msg: Msg | None = None
    body_key: bytes | None = None
    fault: NotAnEvent | None = None
    is_closed: bool = False


class RecordFormat(Protocol):
    """A format of records."""

    name: str

    def encode(self, record: Record, plan: ReplayPlan) -> bytes:
        """Encode a record, deterministically."""

    def end(self, buffer: bytes, at: int) -> int | None:
        """Where the record at ``at`` ends, or None when it is incomplete."""

    def decode(self, raw: bytes) -> ReplayPlan | Proof | WrittenItem:
        """Decode a record, or raise Malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAt:
    """The next position in a stream, the leaf before it, and the last proof that was written."""

    next_seq: int
    leaf: bytes = b""
    proof_from: int = 0
    proof_to: int = 0

    @property
    def is_within_proof(self) -> bool:
        return self.next_seq <= self.proof_to


class OutputCursor:
    """Takes records one by one, and refuses the first that is out of place."""

    def __init__(self, plan: ReplayPlan, places: Mapping[str, StreamAt] | None = None) -> None:
        self.plan = plan
        self._stream_ranges = {
            stream_range.stream: stream_range for stream_range in plan.stream_ranges
        }
        self._places = {
            stream_range.stream: StreamAt(next_seq=stream_range.from_seq)
            for stream_range in plan.stream_ranges
        }
        self._places.update(places or {})
        self._last: tuple[int, str, int] = (0, "", 0)
        self._proved = ""
        self.kinds: Counter[str] = Counter()

    @property
    def done(self) -> int:
        return sum(
            self._places[stream_range.stream].next_seq - stream_range.from_seq
            for stream_range in self.plan.stream_ranges
        )

    @property
    def is_complete(self) -> bool:
        return self.done == self.plan.count

    def of(self, stream: str) -> StreamAt:
        return self._places[stream]

    def proof(self, proof: Proof) -> None:
        stream_range, place = self._at(proof.stream, proof.proof.from_seq)
        if place.is_within_proof or proof.proof.from_seq != place.next_seq:
            raise Untrusted(
                f"{at(proof.stream, place.next_seq)}: expected a proof from here on, got one from "
                f"{proof.proof.from_seq} on"
            )
        if (
            not place.next_seq
            <= proof.proof.to_seq
            <= min(stream_range.to_seq, stream_range.proven_to)
        ):
            raise Untrusted(
                f"{at(proof.stream, proof.proof.to_seq)}: the proof ends after the replay"
            )
        self._verify_proof_pending(proof.stream, place.next_seq)
        self._proved = proof.stream
        self._places[proof.stream] = StreamAt(
            next_seq=place.next_seq,
            leaf=place.leaf,
            proof_from=place.next_seq,
            proof_to=proof.proof.to_seq,
        )

    def item(self, stream: str, receipt: Receipt, *, proven: bool) -> None:
        stream_range, place = self._at(stream, receipt.stream_seq)
        seq, order = receipt.stream_seq, (receipt.hub_ts, stream, receipt.stream_seq)
        if seq != place.next_seq or seq > stream_range.to_seq:
            raise Untrusted(f"{at(stream, place.next_seq)}: got stream_seq {seq} instead")
        if order < self._last:
            raise Untrusted(f"{at(stream, seq)}: out of order, it follows {at(*self._last[1:])}")
        if not self.plan.requested.holds(receipt.hub_ts):
            raise Untrusted(f"{at(stream, seq)}: hub time {receipt.hub_ts} is outside the window")
        if proven != (seq <= stream_range.proven_to):
            expected = "proven" if seq <= stream_range.proven_to else "unproven"
            raise Untrusted(f"{at(stream, seq)}: expected the mark {expected}, got the other")
        if proven and self.plan.requested.with_proofs and not place.is_within_proof:
            raise Untrusted(f"{at(stream, seq)}: expected its proof before it, got none")
        self._verify_proof_pending(stream, seq)
        self._last, self._proved = order, ""
        self._places[stream] = StreamAt(
            next_seq=seq + 1,
            leaf=receipt.leaf_hash,
            proof_from=place.proof_from,
            proof_to=place.proof_to,
        )

    def verify_complete(self) -> None:
        for stream_range in self.plan.stream_ranges:
            place = self._places[stream_range.stream]
            if place.next_seq <= stream_range.to_seq:
                raise Untrusted(
                    f"{at(stream_range.stream, place.next_seq)}: it is missing, expected items up "
                    "to "
                    f"{stream_range.to_seq}"
                )

    def _verify_proof_pending(self, stream: str, seq: int) -> None:
        if self._proved not in ("", stream):
            raise Untrusted(
                f"{at(stream, seq)}: it is between a proof and the first item of that proof"
            )

    def _at(self, stream: str, seq: int) -> tuple[StreamRange, StreamAt]:
        if stream not in self._stream_ranges:
            raise Untrusted(f"{at(stream, seq)}: the stream is not in the plan of the replay")
        return self._stream_ranges[stream], self._places[stream]
