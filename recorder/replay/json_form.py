"""Records as JSON lines: bytes in hex, times in ISO-8601, payloads as they were given."""

from __future__ import annotations

import json
from typing import Any

from recorder import timestamp
from recorder.replay.item import Item, ItemKind
from recorder.replay.plan import Plan
from recorder.replay.record import Proof, Record, Written
from veen.errors import Malformed
from veen.msg import Msg
from veen.receipt import Receipt
from veen.record_event import EventFault, NotAnEvent


class JsonLines:
    name = "jsonl"

    def encode(self, record: Record, plan: Plan) -> bytes:
        if isinstance(record, Item):
            found = item_json(record, plan)
        else:
            kind = "replay" if isinstance(record, Plan) else "proof"
            found = {"kind": kind, **record.to_json()}
        text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode() + b"\n"

    def end(self, buffer: bytes, at: int) -> int | None:
        return buffer.find(b"\n", at) + 1 or None

    def decode(self, raw: bytes) -> Plan | Proof | Written:
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"not a line of JSON: {error}") from error
        if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
            raise Malformed("a line that is no record of a replay")
        kind = found.pop("kind")
        if kind == "replay":
            return Plan.from_json(found)
        if kind == "proof":
            return Proof.from_json(found)
        try:
            return _written(ItemKind(kind), found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Malformed(f"not an item of a replay: {error!r}") from error


def item_json(item: Item, plan: Plan) -> dict[str, Any]:
    """One item as JSON; ``msg`` and ``body_key`` only where proofs were asked for."""
    found = {
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
    if plan.wanted.with_proofs:
        found["msg"] = item.msg.encode().hex()
        found["body_key"] = item.body_key.hex() if item.body_key else None
    return found


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
    told = {} if fault is None else {"fault": fault.fault.name, "detail": str(fault)}
    return {"principal_id": item.msg.client_id.hex(), **told}


def _source(item: Item) -> dict[str, Any]:
    """The place of an imported event at its origin, and how it came here."""
    found = item.imported
    if found is None:
        return {}
    receipt = found.receipt()
    return {
        "source_hub_id": found.source_hub_id.hex(),
        "source_stream": found.origin_stream,
        "source_commit_seq": receipt.stream_seq,
        "source_commit_time": timestamp.render(receipt.hub_ts * 1000),
        "source_receipt_id": f"rcpt-{receipt.leaf_hash.hex()}",
        "import_time": timestamp.render(found.import_time * 1000),
        "bundle_id": found.bundle_id.hex(),
    }


def _written(kind: ItemKind, found: dict[str, Any]) -> Written:
    fault = None
    if not isinstance(found["stream"], str):
        raise Malformed("the name of a stream is text")
    if kind is ItemKind.OTHER:
        fault = told_fault(found["fault"], found["detail"])
    return Written(
        stream=found["stream"],
        receipt=Receipt.decode(bytes.fromhex(found["receipt"])),
        proven=found["proven"] is True,
        msg=Msg.decode(bytes.fromhex(found["msg"])) if "msg" in found else None,
        body_key=bytes.fromhex(found["body_key"]) if found.get("body_key") else None,
        fault=fault,
        is_closed=kind is ItemKind.RECEIPT,
    )


def told_fault(name: str, detail: str) -> NotAnEvent:
    """A fault as it was written down, with the words it came with."""
    fault = EventFault[name]
    start = f"{fault.value}: "
    return NotAnEvent(fault, detail.removeprefix(start) if detail.startswith(start) else "")
