"""The root of a label computed again from the messages that a hub serves (spec 4.4.1)."""

from __future__ import annotations

from veen.checkpoint import Checkpoint
from veen.client.errors import HubRefused
from veen.client.hub_api import HubApi
from veen.client.pages import Range, pages
from veen.client.pair import Log
from veen.client.progress import Progress, untold
from veen.errors import Code, Untrusted
from veen.hub_identity import HubIdentity
from veen.mmr import EMPTY, Peaks
from veen.msg import Msg
from veen.receipt import Receipt


def verify_recomputed(
    api: HubApi, log: Log, hub: HubIdentity, checkpoint: Checkpoint, progress: Progress = untold
) -> int:
    """Refuse a checkpoint whose root the messages up to it do not have; how many were read.

    Where retention took the first entries away, the oldest receipt that is left vouches for the
    peaks before it.
    """
    upto = checkpoint.upto_seq
    first = _first_readable(api, log.label, upto)
    peaks = EMPTY if first == 1 else _peaks_before(api, log, hub, first)
    for page in pages(api, log, Range(from_seq=first, to_seq=upto)):
        for item in page.items:
            peaks = peaks.append(_leaf(log, item.stream_seq, item.msg))
        progress(peaks.size - first + 1, upto - first + 1)
    if peaks.size != upto:
        raise Untrusted(f"{log.at(upto)}: expected entries up to here, the hub ended {peaks.size}")
    if peaks.root() != checkpoint.mmr_root:
        raise Untrusted(
            f"{log.at(upto)}: the messages have root {peaks.root().hex()}, "
            f"the checkpoint says {checkpoint.mmr_root.hex()}"
        )
    return upto - first + 1


def signed_receipt(api: HubApi, log: Log, hub: HubIdentity, seq: int) -> Receipt:
    """The receipt of a place, signed by a key of the hub valid at its hub_ts."""
    found = api.receipt(log.label, seq)
    if (found.label, found.stream_seq) != (log.label, seq):
        raise Untrusted(
            f"{log.at(seq)}: expected the receipt of this place, got that of {found.stream_seq}"
        )
    hub.verify_receipt(found)
    return found


def _leaf(log: Log, seq: int, raw: bytes) -> bytes:
    msg = Msg.decode(raw)
    if msg.label != log.label or not msg.ct_hash_matches():
        raise Untrusted(f"{log.at(seq)}: the message is of another label, or not what it was")
    return msg.leaf_hash()


def _peaks_before(api: HubApi, log: Log, hub: HubIdentity, first: int) -> Peaks:
    receipt = signed_receipt(api, log, hub, first)
    proof = api.consistency(log.label, first - 1, first)
    peaks = proof.before()
    if peaks.size != first - 1 or peaks.append(receipt.leaf_hash).root() != receipt.mmr_root:
        raise Untrusted(f"{log.at(first)}: the hub's peaks do not lead to its receipt")
    return peaks


def _first_readable(api: HubApi, label: bytes, last: int) -> int:
    """Retention takes entries from the start, without holes."""
    if _is_readable(api, label, 1):
        return 1
    gone, there = 1, last
    while there - gone > 1:
        middle = (gone + there) // 2
        if _is_readable(api, label, middle):
            there = middle
        else:
            gone = middle
    return there


def _is_readable(api: HubApi, label: bytes, seq: int) -> bool:
    try:
        api.receipt(label, seq)
    except HubRefused as error:
        if error.code != Code.NOT_FOUND.value:
            raise
        return False
    return True
