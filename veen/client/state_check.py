"""Whether what we know of a label and what a hub shows of it are one history."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from veen.client import cbor_sequence, epochs, own_receipts
from veen.client.head import head
from veen.client.pair import Log
from veen.client.session import Session
from veen.client.view import LabelView
from veen.errors import Malformed, Untrusted
from veen.label import EpochLabels
from veen.mmr import Peaks, peak_nodes
from veen.range_proof import verify_consistency
from veen.receipt import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVerdict:
    """``agrees_to`` is how far both are known to be the same, ``mismatch_at`` the first place
    where they differ, if what we hold tells it. ``unlinked`` says that a receipt of our own
    beyond our view has not been tied to it yet.
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
    """Compare a view with the hub's log in O(log n) requests; nothing is changed by it."""
    log = epochs.current(session, labels, name, epoch)
    view = session.view(log.label, name, log.epoch)
    end = head(session, log, 0)
    try:
        _verify_view(session, log, view, end)
    except Untrusted as error:
        agreed, differs = _first_difference(session, log, view, end.stream_seq if end else 0)
        return _verdict(log, view, end, agreed, differs, str(error))
    return _verdict(log, view, end, view.seen, None, None)


def _verdict(
    log: Log,
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


def _verify_view(session: Session, log: Log, view: LabelView, end: Receipt | None) -> None:
    view.verify()
    for ours in (view.head, view.unlinked):
        if ours is None:
            continue
        session.verify_receipt(ours)
        if end is None or end.stream_seq < ours.stream_seq:
            raise Untrusted(f"{log.at(ours.stream_seq)}: the hub signed it and has it no more")
        verify_consistency(
            session.api.consistency(log.label, ours.stream_seq, end.stream_seq),
            old_size=ours.stream_seq,
            old_root=ours.mmr_root,
            new_size=end.stream_seq,
            new_root=end.mmr_root,
        )


def _first_difference(
    session: Session, log: Log, view: LabelView, hub_size: int
) -> tuple[int, int | None]:
    """How far both agree, and where they part, if that is exactly known.

    A root that agrees makes all before it agree, so receipts can be searched by halves; our
    peaks then tell within which run of entries of our view the first difference is.
    """
    agreed, differs = _by_receipts(session, log, min(view.seen, hub_size))
    size = view.peaks.size
    if 0 < size <= hub_size:
        theirs = session.api.consistency(log.label, size, size).before()
        agreed, differs = _by_peaks(view.peaks, theirs, agreed, differs)
    if differs is None and view.seen > hub_size and agreed == hub_size:
        differs = hub_size + 1
    return agreed, differs if differs == agreed + 1 else None


def _by_receipts(session: Session, log: Log, most: int) -> tuple[int, int | None]:
    seqs, offsets = array("Q"), array("Q")
    for offset, receipt in _own_receipts(session, log):
        if receipt.stream_seq <= most and (not seqs or receipt.stream_seq > seqs[-1]):
            seqs.append(receipt.stream_seq)
            offsets.append(offset)
    path = session.root / own_receipts.FILE
    first = bisect_left(
        range(len(seqs)),
        True,
        key=lambda i: _differs(session, log, cbor_sequence.item_at(path, offsets[i], Receipt)),
    )
    return seqs[first - 1] if first else 0, seqs[first] if first < len(seqs) else None


def _own_receipts(session: Session, log: Log) -> Iterator[tuple[int, Receipt]]:
    """Receipts of this label that we hold, and where each begins; up to a torn end."""
    with suppress(Malformed):
        for offset, receipt in cbor_sequence.items(session.root / own_receipts.FILE, Receipt):
            if receipt.label == log.label:
                yield offset, receipt


def _differs(session: Session, log: Log, receipt: Receipt) -> bool:
    size = receipt.stream_seq
    return session.api.consistency(log.label, size, size).before().root() != receipt.mmr_root


def _by_peaks(
    ours: Peaks, theirs: Peaks, agreed: int, differs: int | None
) -> tuple[int, int | None]:
    """The oldest peak comes last, and covers the first entries."""
    runs = reversed(list(zip(peak_nodes(ours.size), ours.hashes, theirs.hashes, strict=True)))
    for (height, index), mine, other in runs:
        first, last = (index << height) + 1, (index + 1) << height
        if mine != other:
            by_peak = last if height == 0 else None
            return max(agreed, first - 1), differs or by_peak
        agreed = max(agreed, last)
    return agreed, differs
