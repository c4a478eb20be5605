"""What an output holds, in whatever form: the plan, then proofs and items in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from recorder.replay.item import Item
from recorder.replay.plan import Plan
from veen.msg import Msg
from veen.range_proof import RangeProof
from veen.receipt import Receipt
from veen.record_event import NotAnEvent
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(WireMap):
    """The proof of the next items of a stream, all of those it names, against the checkpoint."""

    stream: str
    proof: RangeProof


Record = Plan | Proof | Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An item as it was found in an output: what it rests on, and not what it says of itself."""

    stream: str
    receipt: Receipt
    proven: bool
    msg: Msg | None = None
    body_key: bytes | None = None
    fault: NotAnEvent | None = None
    is_closed: bool = False


class Form(Protocol):
    """One way of writing records, one after another."""

    name: str

    def encode(self, record: Record, plan: Plan) -> bytes:
        """The bytes of one record, the same each time."""

    def end(self, buffer: bytes, at: int) -> int | None:
        """Where the record at ``at`` ends, or None when it is not all there."""

    def decode(self, raw: bytes) -> Plan | Proof | Written:
        """The record that was written, or Malformed."""
