"""What is checked in each event of a bundle, a batch at a time, in any process (AGB0 4.5).

A fault is returned rather than raised: which of them counts is for whoever sees all batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.bundle import BundleEvent
from bridge.refusal import Fault, Refused
from bridge.verify_metadata import wrong_metadata
from veen import cbor
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.msg import Msg
from veen.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Terms:
    """What the events of one bundle are held to."""

    hub: HubIdentity
    label: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a batch holds, up to the first event that is not at its place.

    The three kinds of fault rank in this order over the whole bundle, wherever they stand in it.
    """

    leaves: bytes
    """As the receipts give them, 32 bytes each; and so the roots."""
    roots: bytes
    first_ts: int
    last_ts: int
    misplaced: Refused | None
    unsigned: Refused | None
    mistold: Refused | None
    told: int
    """Events with metadata."""
    unopened: int
    """Those of them whose body is not disclosed, so that not all of it could be checked."""


def examine(raw: bytes, first_seq: int, terms: Terms) -> Findings:
    """Read each event strictly, recompute its leaf from the message, verify both signatures."""
    receipts: list[Receipt] = []
    misplaced = unsigned = mistold = None
    told = unopened = 0
    for seq, item in enumerate(cbor.decode_sequence(raw), first_seq):
        try:
            event, msg, receipt = _read(item, seq)
            _verify_place(msg, receipt, seq, terms)
        except Refused as error:
            misplaced = error
            break
        receipts.append(receipt)
        unsigned = unsigned or _bad_signature(msg, receipt, terms)
        told += event.metadata is not None
        unopened += event.metadata is not None and event.body_key is None
        mistold = mistold or wrong_metadata(event, msg, receipt)
    return Findings(
        leaves=b"".join([one.leaf_hash for one in receipts]),
        roots=b"".join([one.mmr_root for one in receipts]),
        first_ts=receipts[0].hub_ts if receipts else 0,
        last_ts=receipts[-1].hub_ts if receipts else 0,
        misplaced=misplaced,
        unsigned=unsigned,
        mistold=mistold,
        told=told,
        unopened=unopened,
    )


def _bad_signature(msg: Msg, receipt: Receipt, terms: Terms) -> Refused | None:
    seq = receipt.stream_seq
    try:
        terms.hub.verify_receipt(receipt)
    except Untrusted as error:
        return Refused(Fault.RECEIPT_SIG, str(error), seq=seq)
    if not msg.signature_is_valid():
        return Refused(Fault.MSG_SIG, "the message is not signed by its client", seq=seq)
    return None


def _read(item: bytes, seq: int) -> tuple[BundleEvent, Msg, Receipt]:
    try:
        event = BundleEvent.decode(item)
        return event, Msg.decode(event.payload), Receipt.decode(event.receipt)
    except Malformed as error:
        raise Refused(Fault.EVENT_FORMAT, str(error), seq=seq) from error


def _verify_place(msg: Msg, receipt: Receipt, seq: int, terms: Terms) -> None:
    if receipt.stream_seq != seq:
        raise Refused(Fault.PLACE, f"the receipt of event {receipt.stream_seq}", seq=seq)
    if msg.label != terms.label or receipt.label != terms.label:
        raise Refused(Fault.PLACE, "an event of another stream", seq=seq)
    if not msg.ct_hash_matches() or msg.leaf_hash() != receipt.leaf_hash:
        raise Refused(Fault.LEAF, "the receipt is not for this message", seq=seq)
