"""The text and binary formats of a replay: JSON lines, and a CBOR sequence (RFC 8742).

JSON lines have bytes in hex, times in ISO 8601, and payloads as they were submitted. The CBOR
sequence has byte strings, and the body of each event as it was sealed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from recorder import timestamp
from recorder.replay.plan import ReplayPlan
from recorder.replay.records import Item, ItemKind, Proof, Record, WrittenItem
from veen.errors import Malformed
from veen.events import EventFault, ImportedEvent, NotAnEvent
from veen.msg import Msg
from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, RawItem

_PLAN, _PROOF, _ITEM = range(3)
_EARLIER_NAMES: Final = {"wanted": "requested", "stretches": "stream_ranges"}
_RECORD_NUMBERS: Final = {ReplayPlan: _PLAN, Proof: _PROOF}


class JsonLines:
    """Records as JSON lines."""

    name = "jsonl"

    def encode(self, record: Record, plan: ReplayPlan) -> bytes:
        if isinstance(record, Item):
            document = item_json(record, plan)
        else:
            kind = "replay" if isinstance(record, ReplayPlan) else "proof"
            document = {"kind": kind, **record.to_json()}
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode() + b"\n"

    def end(self, buffer: bytes, at: int) -> int | None:
        return buffer.find(b"\n", at) + 1 or None

    def decode(self, raw: bytes) -> ReplayPlan | Proof | WrittenItem:
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"expected a line of JSON: {error}") from error
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise Malformed("expected an object with a kind, as a replay writes it")
        kind = document.pop("kind")
        if kind == "replay":
            return ReplayPlan.from_json(_current_names(document))
        if kind == "proof":
            return Proof.from_json(document)
        try:
            return _json_record(ItemKind(kind), document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Malformed(f"expected an item of a replay: {error!r}") from error


def _current_names(document: dict[str, Any]) -> dict[str, Any]:
    """A plan with today's names of its fields; replays of earlier versions have other names."""
    return {_EARLIER_NAMES.get(name, name): value for name, value in document.items()}


def item_json(item: Item, plan: ReplayPlan) -> dict[str, Any]:
    """An item as JSON; ``msg`` and ``body_key`` only if proofs were requested."""
    document = {
        "kind": item.kind.value,
        "stream": item.stream,
        **_fields(item),
        "hub_commit_seq": item.seq,
        "hub_commit_time": timestamp.render(item.receipt.hub_ts * 1000),
        "receipt_id": item.receipt_id,
        "receipt": item.receipt.encode().hex(),
        "proven": item.proven,
        "checkpoint_id": plan.checkpoint_id.hex() if item.proven else None,
        **_source(item),
    }
    if plan.requested.with_proofs:
        document["msg"] = item.msg.encode().hex()
        document["body_key"] = item.body_key.hex() if item.body_key else None
    return document


def _fields(item: Item) -> dict[str, Any]:
    event, fault = item.event, item.fault
    if event is not None:
        return {
            "subject_id": event.subject_id,
            "principal_id": event.principal_id.hex(),
            "event_type": event.event_type,
            "event_time": timestamp.render(event.event_time),
            "origin": event.origin,
            "payload": event.value(),
        }
    detail = {} if fault is None else {"fault": fault.fault.name, "detail": str(fault)}
    return {"principal_id": item.msg.client_id.hex(), **detail}


def _source(item: Item) -> dict[str, Any]:
    """The position of an imported event at its origin, and its import."""
    imported = item.imported
    if imported is None:
        return {}
    receipt = imported.receipt()
    return {
        "source_hub_id": imported.source_hub_id.hex(),
        "source_stream": imported.origin_stream,
        "source_commit_seq": receipt.stream_seq,
        "source_commit_time": timestamp.render(receipt.hub_ts * 1000),
        "source_receipt_id": f"rcpt-{receipt.leaf_hash.hex()}",
        "import_time": timestamp.render(imported.import_time * 1000),
        "bundle_id": imported.bundle_id.hex(),
    }


def _json_record(kind: ItemKind, document: dict[str, Any]) -> WrittenItem:
    fault = None
    if not isinstance(document["stream"], str):
        raise Malformed("stream: expected text")
    if kind is ItemKind.OTHER:
        fault = reported_fault(document["fault"], document["detail"])
    return WrittenItem(
        stream=document["stream"],
        receipt=Receipt.decode(bytes.fromhex(document["receipt"])),
        proven=document["proven"] is True,
        msg=Msg.decode(bytes.fromhex(document["msg"])) if "msg" in document else None,
        body_key=bytes.fromhex(document["body_key"]) if document.get("body_key") else None,
        fault=fault,
        is_closed=kind is ItemKind.RECEIPT,
    )


def reported_fault(name: str, detail: str) -> NotAnEvent:
    """A fault as it was written, with its message."""
    fault = EventFault[name]
    start = f"{fault.value}: "
    return NotAnEvent(fault, detail.removeprefix(start) if detail.startswith(start) else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CborItem(WireMap):
    """An item; ``event`` is the map of its six sealed fields, the other two are hub_commit_*.

    ``checkpoint_id`` is set when the item is proven. Fields that begin with ``source`` are of the
    origin of an imported event. Times are in seconds.
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
    """Records as a CBOR sequence of [number, record]."""

    name = "cbor"

    def encode(self, record: Record, plan: ReplayPlan) -> bytes:
        if isinstance(record, Item):
            number, raw = _ITEM, cbor_item(record, plan).encode()
        else:
            number, raw = _RECORD_NUMBERS[type(record)], record.encode()
        return cbor.dump([number, cbor.Verbatim(raw)])

    def end(self, buffer: bytes, at: int) -> int | None:
        try:
            return cbor.skip(buffer, at)
        except Malformed:
            return None

    def decode(self, raw: bytes) -> ReplayPlan | Proof | WrittenItem:
        count, start = cbor.array(raw, 0)
        number, start = cbor.uint(raw, start)
        if count != 2 or number > _ITEM:
            raise Malformed("expected a plan, a proof or an item of a replay")
        if number == _PLAN:
            return ReplayPlan.decode(raw[start:])
        if number == _PROOF:
            return Proof.decode(raw[start:])
        return _cbor_record(CborItem.decode(raw[start:]))


def cbor_item(item: Item, plan: ReplayPlan) -> CborItem:
    proofs, fault = plan.requested.with_proofs, item.fault
    encoded = CborItem(
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
    return encoded if item.imported is None else _with_source(encoded, item.imported)


def _with_source(item: CborItem, imported: ImportedEvent) -> CborItem:
    receipt = imported.receipt()
    return replace(
        item,
        source_hub_id=imported.source_hub_id,
        source_stream=imported.origin_stream,
        source_commit_seq=receipt.stream_seq,
        source_commit_time=receipt.hub_ts,
        source_receipt_id=f"rcpt-{receipt.leaf_hash.hex()}",
        import_time=imported.import_time,
        bundle_id=imported.bundle_id,
    )


def _cbor_record(item: CborItem) -> WrittenItem:
    fault = None
    if item.kind == ItemKind.OTHER.value:
        try:
            fault = reported_fault(item.fault or "", item.detail or "")
        except KeyError as error:
            raise Malformed(f"unknown fault {error}") from error
    return WrittenItem(
        stream=item.stream,
        receipt=Receipt.decode(item.receipt),
        proven=item.checkpoint_id is not None,
        msg=Msg.decode(item.msg) if item.msg else None,
        body_key=item.body_key,
        fault=fault,
        is_closed=item.kind == ItemKind.RECEIPT.value,
    )
