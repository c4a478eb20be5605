"""Records as a CBOR sequence: bytes as bytes, each event's body as it was sealed (RFC 8742)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from recorder.replay.item import Item, ItemKind
from recorder.replay.json_form import told_fault
from recorder.replay.plan import Plan
from recorder.replay.record import Proof, Record, Written
from veen import cbor
from veen.errors import Malformed
from veen.import_event import ImportedEvent
from veen.msg import Msg
from veen.receipt import Receipt
from veen.schema import Bytes32, RawItem
from veen.wire import WireMap

_PLAN, _PROOF, _ITEM = range(3)
_NUMBERS: Final = {Plan: _PLAN, Proof: _PROOF}


@dataclass(frozen=True, slots=True, kw_only=True)
class CborItem(WireMap):
    """One item. ``event`` is the map of its six sealed fields; the other two are hub_commit_*.

    ``hub_commit_time`` is in seconds. ``checkpoint_id`` is there when the item is proven. What
    begins with ``source`` is of the origin of an imported event; times are in seconds.
    """

    kind: str
    stream: str
    hub_commit_seq: int
    hub_commit_time: int
    principal_id: Bytes32
    event: RawItem | None = None
    fault: str | None = None
    detail: str | None = None
    receipt_id: str
    receipt: RawItem
    checkpoint_id: Bytes32 | None = None
    msg: RawItem | None = None
    body_key: Bytes32 | None = None
    source_hub_id: Bytes32 | None = None
    source_stream: str | None = None
    source_commit_seq: int | None = None
    source_commit_time: int | None = None
    source_receipt_id: str | None = None
    import_time: int | None = None
    bundle_id: Bytes32 | None = None


class CborSequence:
    name = "cbor"

    def encode(self, record: Record, plan: Plan) -> bytes:
        if isinstance(record, Item):
            number, raw = _ITEM, cbor_item(record, plan).encode()
        else:
            number, raw = _NUMBERS[type(record)], record.encode()
        return cbor.dump([number, cbor.Verbatim(raw)])

    def end(self, buffer: bytes, at: int) -> int | None:
        try:
            return cbor.skip(buffer, at)
        except Malformed:
            return None

    def decode(self, raw: bytes) -> Plan | Proof | Written:
        count, start = cbor.array(raw, 0)
        number, start = cbor.uint(raw, start)
        if count != 2 or number > _ITEM:
            raise Malformed("not a record of a replay")
        if number == _PLAN:
            return Plan.decode(raw[start:])
        if number == _PROOF:
            return Proof.decode(raw[start:])
        return _written(CborItem.decode(raw[start:]))


def cbor_item(item: Item, plan: Plan) -> CborItem:
    proofs, fault = plan.wanted.with_proofs, item.fault
    found = CborItem(
        kind=item.kind.value,
        stream=item.stream,
        hub_commit_seq=item.seq,
        hub_commit_time=item.receipt.hub_ts,
        principal_id=item.msg.client_id if item.event is None else item.event.principal_id,
        event=item.event.encode() if item.event is not None else None,
        fault=fault.fault.name if fault is not None else None,
        detail=str(fault) if fault is not None else None,
        receipt_id=item.receipt_id,
        receipt=item.receipt.encode(),
        checkpoint_id=plan.checkpoint_id if item.proven else None,
        msg=item.msg.encode() if proofs else None,
        body_key=item.body_key if proofs else None,
    )
    return found if item.imported is None else _with_source(found, item.imported)


def _with_source(found: CborItem, imported: ImportedEvent) -> CborItem:
    receipt = imported.receipt()
    return replace(
        found,
        source_hub_id=imported.source_hub_id,
        source_stream=imported.origin_stream,
        source_commit_seq=receipt.stream_seq,
        source_commit_time=receipt.hub_ts,
        source_receipt_id=f"rcpt-{receipt.leaf_hash.hex()}",
        import_time=imported.import_time,
        bundle_id=imported.bundle_id,
    )


def _written(found: CborItem) -> Written:
    fault = None
    if found.kind == ItemKind.OTHER.value:
        try:
            fault = told_fault(found.fault or "", found.detail or "")
        except KeyError as error:
            raise Malformed(f"there is no fault {error}") from error
    return Written(
        stream=found.stream,
        receipt=Receipt.decode(found.receipt),
        proven=found.checkpoint_id is not None,
        msg=Msg.decode(found.msg) if found.msg else None,
        body_key=found.body_key,
        fault=fault,
        is_closed=found.kind == ItemKind.RECEIPT.value,
    )
