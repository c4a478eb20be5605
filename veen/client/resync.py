"""Resync: bringing the view of a label up to the hub's log, and comparing the two (RESYNC0.2)."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

from veen.checkpoint import Checkpoint
from veen.client.checkpoints import checkpoints, verify_checkpoint, verify_signature
from veen.client.log_head import (
    LabelLogRef,
    first_readable,
    is_readable,
    read_log_head,
    receipt_at,
    store_evidence,
)
from veen.client.reader import current_epoch
from veen.client.receipts import RECEIPTS_FILE, cbor_item_at, cbor_items, rebuilding_receipts
from veen.client.session import LabelView, Session
from veen.client.verified_read import LabelRange, is_signed, own_client_ids, replay
from veen.errors import Malformed, Untrusted
from veen.label import EpochLabels
from veen.mmr import Peaks, peak_nodes
from veen.proofs import verify_consistency
from veen.receipt import Receipt
from veen.system.environment import Progress, no_progress


class Was(Enum):
    """The condition of a view before a resync."""

    CURRENT = "current"
    BEHIND = "behind"
    LOST = "lost"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resynced:
    """The result of a resync; ``first_seq`` is above 1 where entries were pruned."""

    label: bytes
    from_size: int
    to_size: int
    first_seq: int
    checkpoints_checked: int
    replayed: int
    was: Was


def resync(
    session: Session,
    labels: EpochLabels,
    name: str,
    *,
    epoch: int | None = None,
    progress: Progress = no_progress,
) -> Resynced:
    """Read and verify what the view lacks; another history raises Fork or Untrusted.

    The view is saved after each page, so an interrupted resync continues there.
    """
    log = current_epoch(session, labels, name, epoch)
    view = session.view(log.label, name, log.epoch)
    sound = _sound(session, view)
    end = read_log_head(session, log, sound.seen)
    if end is not None:
        _verify_no_fork(session, sound, end)
    first = _first(session, log, sound, end)
    if sound is not view:
        label_view = sound if first == 1 else replace(sound, cursors=view.cursors)
        session.keep(log.label, label_view)
    total = end.stream_seq - first + 1 if end is not None else 0
    replayed, checked = _replay(
        session, log, first, sound.peaks.size, lambda done: progress(done, total)
    )
    size = session.view(log.label, name, log.epoch).peaks.size
    return Resynced(
        label=log.label,
        from_size=sound.peaks.size,
        to_size=size,
        first_seq=first,
        checkpoints_checked=checked,
        replayed=replayed,
        was=Was.DAMAGED if sound is not view else _was(sound.peaks.size, size),
    )


def _was(before: int, after: int) -> Was:
    if after == before:
        return Was.CURRENT
    return Was.BEHIND if before else Was.LOST


def _sound(session: Session, view: LabelView) -> LabelView:
    """The view, or a new one if its own receipts do not confirm it.

    A receipt that the hub signed is kept: the hub's log must still have it.
    """
    try:
        view.verify()
        for receipt in (view.head, view.unlinked):
            if receipt is not None:
                session.verify_receipt(receipt)
    except Untrusted:
        signed = [
            receipt
            for receipt in (view.head, view.unlinked)
            if receipt and is_signed(session, receipt)
        ]
        newest = max(signed, key=lambda receipt: receipt.stream_seq, default=None)
        return LabelView(
            hub_id=session.hub.hub_id, stream=view.stream, epoch=view.epoch, unlinked=newest
        )
    return view


def _verify_no_fork(session: Session, view: LabelView, end: Receipt) -> None:
    for ours in (view.head, view.unlinked):
        if ours is not None and ours.contradicts(end):
            raise store_evidence(session, ours, end)


def _replay(
    session: Session, log: LabelLogRef, first: int, size: int, progress: Callable[[int], None]
) -> tuple[int, int]:
    """The number of pairs read, and of checkpoints verified among them."""
    own, replayed, checked = own_client_ids(session.identity), 0, 0
    ahead = checkpoints(session, log, first)
    checkpoint = next(ahead, None)

    def is_before(receipt: Receipt) -> bool:
        return receipt.label != log.label or receipt.stream_seq <= size

    with rebuilding_receipts(session.root, is_before) as rebuilt:
        for page in replay(session, log, LabelRange(from_seq=first), skips=first > size + 1):
            replayed += len(page)
            progress(replayed)
            for msg, receipt in ((pair.msg, pair.receipt) for pair in page):
                if msg.client_id in own:
                    rebuilt.add(receipt)
                if checkpoint is not None and checkpoint.upto_seq == receipt.stream_seq:
                    verify_checkpoint(session, log, checkpoint, receipt)
                    checked, checkpoint = checked + 1, next(ahead, None)
    return replayed, checked


def _first(session: Session, log: LabelLogRef, view: LabelView, end: Receipt | None) -> int:
    """The first stream_seq to read: after the view, or the first that is not pruned."""
    start = view.peaks.size + 1
    if end is None or start > end.stream_seq or is_readable(session.api, log.label, start):
        return start
    first = first_readable(session.api, log.label, start, end.stream_seq)
    _verify_pruned(session, log, view, receipt_at(session, log, first))
    return first


def _verify_pruned(session: Session, log: LabelLogRef, view: LabelView, first: Receipt) -> None:
    """Verify that our receipt and a checkpoint before the pruned entries lead to ``first``.

    A checkpoint beyond ``first`` is verified when it is reached.
    """
    before = first.stream_seq - 1
    ties = []
    for checkpoint in _checkpoint_at(session, log, before):
        verify_signature(session, log, checkpoint, _known_ts(view, before))
        ties.append((checkpoint.upto_seq, checkpoint.mmr_root))
    if view.unlinked is not None and view.unlinked.stream_seq <= before:
        ties.append((view.unlinked.stream_seq, view.unlinked.mmr_root))
    for size, root in ties:
        verify_consistency(
            session.api.consistency(log.label, size, first.stream_seq),
            old_size=size,
            old_root=root,
            new_size=first.stream_seq,
            new_root=first.mmr_root,
        )


def _known_ts(view: LabelView, seq: int) -> int:
    """The hub_ts of our last receipt up to ``seq``, or 0.

    The root at ``seq`` does not depend on it: the first receipt that is left proves it.
    """
    held = (view.head, view.unlinked)
    return max(
        (receipt.hub_ts for receipt in held if receipt and receipt.stream_seq <= seq), default=0
    )


def _checkpoint_at(session: Session, log: LabelLogRef, size: int) -> Iterator[Checkpoint]:
    for checkpoint in checkpoints(session, log, size):
        if checkpoint.upto_seq == size:
            yield checkpoint
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVerdict:
    """The comparison of our view with the hub's log.

    ``agrees_to`` is the size up to which both are equal, ``mismatch_at`` the first stream_seq at
    which they differ, if known. ``unlinked`` says that a receipt of our own beyond our view is
    not linked to it yet.
    """

    label: bytes
    consistent: bool
    local_seq: int
    local_root: bytes | None
    hub_seq: int
    hub_root: bytes | None
    agrees_to: int
    mismatch_at: int | None
    unlinked: bool
    reason: str | None


def verify_state(
    session: Session, labels: EpochLabels, name: str, *, epoch: int | None = None
) -> StateVerdict:
    """Compare a view with the hub's log in O(log n) requests; nothing is changed."""
    log = current_epoch(session, labels, name, epoch)
    view = session.view(log.label, name, log.epoch)
    end = read_log_head(session, log, 0)
    try:
        _verify_view(session, log, view, end)
    except Untrusted as error:
        agreed, differs = _first_difference(session, log, view, end.stream_seq if end else 0)
        return _verdict(log, view, end, agreed, differs, str(error))
    return _verdict(log, view, end, view.seen, None, None)


def _verdict(
    log: LabelLogRef,
    view: LabelView,
    end: Receipt | None,
    agrees_to: int,
    mismatch_at: int | None,
    reason: str | None,
) -> StateVerdict:
    return StateVerdict(
        label=log.label,
        consistent=reason is None,
        local_seq=view.peaks.size,
        local_root=view.peaks.root() if view.peaks.size else None,
        hub_seq=end.stream_seq if end else 0,
        hub_root=end.mmr_root if end else None,
        agrees_to=agrees_to,
        mismatch_at=mismatch_at,
        unlinked=view.unlinked is not None,
        reason=reason,
    )


def _verify_view(session: Session, log: LabelLogRef, view: LabelView, end: Receipt | None) -> None:
    view.verify()
    for ours in (view.head, view.unlinked):
        if ours is None:
            continue
        session.verify_receipt(ours)
        if end is None or end.stream_seq < ours.stream_seq:
            raise Untrusted(
                f"{log.at(ours.stream_seq)}: the hub signed this entry and no longer has it"
            )
        verify_consistency(
            session.api.consistency(log.label, ours.stream_seq, end.stream_seq),
            old_size=ours.stream_seq,
            old_root=ours.mmr_root,
            new_size=end.stream_seq,
            new_root=end.mmr_root,
        )


def _first_difference(
    session: Session, log: LabelLogRef, view: LabelView, hub_size: int
) -> tuple[int, int | None]:
    """The size up to which both agree, and the first difference if it is known exactly.

    An equal root implies that all before it is equal, so receipts are searched by bisection; our
    peaks then narrow down the run of entries with the first difference.
    """
    agreed, differs = _by_receipts(session, log, min(view.seen, hub_size))
    size = view.peaks.size
    if 0 < size <= hub_size:
        theirs = session.api.consistency(log.label, size, size).before()
        agreed, differs = _by_peaks(view.peaks, theirs, agreed, differs)
    if differs is None and view.seen > hub_size and agreed == hub_size:
        differs = hub_size + 1
    return agreed, differs if differs == agreed + 1 else None


def _by_receipts(session: Session, log: LabelLogRef, limit: int) -> tuple[int, int | None]:
    seqs, offsets = array("Q"), array("Q")
    for offset, receipt in _own_receipts(session, log):
        if receipt.stream_seq <= limit and (not seqs or receipt.stream_seq > seqs[-1]):
            seqs.append(receipt.stream_seq)
            offsets.append(offset)
    path = session.root / RECEIPTS_FILE
    first = bisect_left(
        range(len(seqs)),
        True,
        key=lambda i: _differs(session, log, cbor_item_at(path, offsets[i], Receipt)),
    )
    return seqs[first - 1] if first else 0, seqs[first] if first < len(seqs) else None


def _own_receipts(session: Session, log: LabelLogRef) -> Iterator[tuple[int, Receipt]]:
    """Our receipts of this label with their offsets, up to a torn end."""
    with suppress(Malformed):
        for offset, receipt in cbor_items(session.root / RECEIPTS_FILE, Receipt):
            if receipt.label == log.label:
                yield offset, receipt


def _differs(session: Session, log: LabelLogRef, receipt: Receipt) -> bool:
    size = receipt.stream_seq
    return session.api.consistency(log.label, size, size).before().root() != receipt.mmr_root


def _by_peaks(
    ours: Peaks, theirs: Peaks, agreed: int, differs: int | None
) -> tuple[int, int | None]:
    """Compare peaks from the oldest, which comes last and covers the first entries."""
    runs = reversed(list(zip(peak_nodes(ours.size), ours.hashes, theirs.hashes, strict=True)))
    for (height, index), mine, other in runs:
        first, last = (index << height) + 1, (index + 1) << height
        if mine != other:
            by_peak = last if height == 0 else None
            return max(agreed, first - 1), differs or by_peak
        agreed = max(agreed, last)
    return agreed, differs
