"""Bringing what we know of a label up to what a hub holds, however we lost it (RESYNC0.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from veen.checkpoint import Checkpoint
from veen.client import epochs, evidence, own_receipts
from veen.client.checkpoints import checkpoints, verify, verify_signature
from veen.client.head import first_readable, head, is_readable, receipt_at
from veen.client.pages import Range
from veen.client.pair import Log
from veen.client.progress import Progress, untold
from veen.client.replay import own_client_ids, replay
from veen.client.session import Session
from veen.client.signatures import is_signed
from veen.client.view import LabelView
from veen.errors import Untrusted
from veen.label import EpochLabels
from veen.range_proof import verify_consistency
from veen.receipt import Receipt


class Was(Enum):
    """What a view was found to be."""

    CURRENT = "current"
    BEHIND = "behind"
    LOST = "lost"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resynced:
    """``first_seq`` is above 1 where retention has taken the beginning away."""

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
    progress: Progress = untold,
) -> Resynced:
    """Replay, verified, what the view lacks; a history that is not ours is Fork or Untrusted.

    The view is saved after each page, so a resync that is cut short goes on where it was.
    """
    log = epochs.current(session, labels, name, epoch)
    view = session.view(log.label, name, log.epoch)
    sound = _sound(session, view)
    end = head(session, log, sound.seen)
    if end is not None:
        _refuse_fork(session, sound, end)
    first = _first(session, log, sound, end)
    if sound is not view:
        kept = sound if first == 1 else replace(sound, cursors=view.cursors)
        session.keep(log.label, kept)
    due = end.stream_seq - first + 1 if end is not None else 0
    replayed, checked = _replay(
        session, log, first, sound.peaks.size, lambda done: progress(done, due)
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
    """The view, or a new one where its own receipts do not bear it out.

    A receipt that the hub did sign is kept: its history must still hold it.
    """
    try:
        view.verify()
        for one in (view.head, view.unlinked):
            if one is not None:
                session.verify_receipt(one)
    except Untrusted:
        signed = [one for one in (view.head, view.unlinked) if one and is_signed(session, one)]
        newest = max(signed, key=lambda one: one.stream_seq, default=None)
        return LabelView(
            hub_id=session.hub.hub_id, stream=view.stream, epoch=view.epoch, unlinked=newest
        )
    return view


def _refuse_fork(session: Session, view: LabelView, end: Receipt) -> None:
    for ours in (view.head, view.unlinked):
        if ours is not None and ours.contradicts(end):
            raise evidence.keep(session, ours, end)


def _replay(
    session: Session, log: Log, first: int, size: int, tell: Callable[[int], None]
) -> tuple[int, int]:
    """How many pairs followed, and how many checkpoints stood among them."""
    own, replayed, checked = own_client_ids(session.identity), 0, 0
    ahead = checkpoints(session, log, first)
    due = next(ahead, None)

    def is_before(receipt: Receipt) -> bool:
        return receipt.label != log.label or receipt.stream_seq <= size

    with own_receipts.rebuilding(session.root, is_before) as rebuilt:
        for page in replay(session, log, Range(from_seq=first), skips=first > size + 1):
            replayed += len(page)
            tell(replayed)
            for msg, receipt in ((pair.msg, pair.receipt) for pair in page):
                if msg.client_id in own:
                    rebuilt.add(receipt)
                if due is not None and due.upto_seq == receipt.stream_seq:
                    verify(session, log, due, receipt)
                    checked, due = checked + 1, next(ahead, None)
    return replayed, checked


def _first(session: Session, log: Log, view: LabelView, end: Receipt | None) -> int:
    """Where a replay begins: after the view, or where the log can first be read."""
    start = view.peaks.size + 1
    if end is None or start > end.stream_seq or is_readable(session, log, start):
        return start
    first = first_readable(session, log, start, end.stream_seq)
    _verify_pruned(session, log, view, receipt_at(session, log, first))
    return first


def _verify_pruned(session: Session, log: Log, view: LabelView, first: Receipt) -> None:
    """What was taken away must lead to what is left: our own receipt, and a checkpoint.

    A checkpoint beyond ``first`` is compared when the replay comes to it.
    """
    before = first.stream_seq - 1
    ties = []
    for one in _checkpoint_at(session, log, before):
        verify_signature(session, log, one, _known_ts(view, before))
        ties.append((one.upto_seq, one.mmr_root))
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
    """The hub_ts of the last receipt we hold up to ``seq``; 0 where we hold none.

    The root at ``seq`` does not rest on it: the first receipt that is left proves it.
    """
    held = (view.head, view.unlinked)
    return max((one.hub_ts for one in held if one and one.stream_seq <= seq), default=0)


def _checkpoint_at(session: Session, log: Log, size: int) -> Iterator[Checkpoint]:
    for one in checkpoints(session, log, size):
        if one.upto_seq == size:
            yield one
        return
