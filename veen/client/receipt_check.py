"""What a receipt proves: by itself, with its message, and against the hub that signed it."""

from __future__ import annotations

from dataclasses import dataclass

from veen.client.head import head
from veen.client.pair import Log
from veen.client.session import Session
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.invariants import Violation
from veen.label import EpochLabels
from veen.limits import Limits
from veen.mmr import EMPTY
from veen.msg import Msg
from veen.range_proof import verify_consistency
from veen.receipt import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptVerdict:
    """``checked`` names what holds, ``head_seq`` the size at which the hub still has it."""

    receipt: Receipt
    checked: tuple[str, ...]
    head_seq: int | None = None


def verify_receipt(
    receipt: Receipt, msg: Msg | None, hub: HubIdentity, labels: EpochLabels | None
) -> ReceiptVerdict:
    """What can be told without a hub; the first thing that does not hold is raised.

    I3 takes the history before a receipt, and can be told here of the first entry alone.
    """
    checked = ["signature"]
    hub.verify_receipt(receipt)
    if labels is not None:
        _verify_label(receipt, labels)
        checked.append("label")
    if msg is not None:
        _verify_msg(receipt, msg)
        checked += ["I1", "I2", "message signature"]
    if receipt.stream_seq == 1:
        if EMPTY.append(receipt.leaf_hash).root() != receipt.mmr_root:
            raise Violation("I3", 1, "mmr_root is not the root of the first leaf alone")
        checked.append("I3")
    return ReceiptVerdict(receipt=receipt, checked=tuple(checked))


def verify_with_hub(
    session: Session, receipt: Receipt, msg: Msg | None, log: Log
) -> ReceiptVerdict:
    """The same and I3 by the hub's proof, and that its log still holds the entry at its head."""
    session.verify_receipt(receipt)
    found = verify_receipt(receipt, msg, session.hub, log.labels)
    seq = receipt.stream_seq
    proof = session.api.proof(log.label, seq)
    try:
        proof.verify(leaf_hash=receipt.leaf_hash, stream_seq=seq, root=receipt.mmr_root)
    except Untrusted as error:
        raise Violation("I3", seq, str(error)) from error
    end = head(session, log, seq)
    if end is None:
        raise Untrusted(f"{log.at(seq)}: the hub has it no more")
    _verify_at(session, log, receipt, end)
    checked = dict.fromkeys((*found.checked, "I3", "consistency", "inclusion"))
    return ReceiptVerdict(receipt=receipt, checked=tuple(checked), head_seq=end.stream_seq)


def _verify_label(receipt: Receipt, labels: EpochLabels) -> None:
    near = labels.accepted(receipt.hub_ts, Limits().max_epoch_skew_sec)
    if receipt.label not in near:
        raise Violation("I12", receipt.stream_seq, "the label is not of this stream at hub_ts")


def _verify_msg(receipt: Receipt, msg: Msg) -> None:
    seq = receipt.stream_seq
    if not msg.ct_hash_matches():
        raise Violation("I1", seq, "ct_hash is not the hash of the ciphertext")
    if (msg.label, msg.leaf_hash()) != (receipt.label, receipt.leaf_hash):
        raise Violation("I2", seq, "the receipt is of another message")
    if not msg.signature_is_valid():
        raise Violation("SIG", seq, "the message is not signed by its client_id")


def _verify_at(session: Session, log: Log, receipt: Receipt, end: Receipt) -> None:
    seq, size = receipt.stream_seq, end.stream_seq
    session.api.inclusion(log.label, seq, size).verify(
        leaf_hash=receipt.leaf_hash, stream_seq=seq, size=size, root=end.mmr_root
    )
    verify_consistency(
        session.api.consistency(log.label, seq, size),
        old_size=seq,
        old_root=receipt.mmr_root,
        new_size=size,
        new_root=end.mmr_root,
    )
