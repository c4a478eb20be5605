"""Replay of a label: pages folded through the invariants, and tied to what we knew before.

All of a page holds, or nothing of it is handed out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

from veen.client import evidence
from veen.client.cursors import Cursors
from veen.client.ends import refuse_other_end, refuse_short
from veen.client.errors import Fork, HubRefused, Unreachable
from veen.client.head import exists, is_missing
from veen.client.pages import Page, Range, pages
from veen.client.pair import Log, Pair
from veen.client.session import Session
from veen.client.signatures import Signatures, is_signed
from veen.client.view import LabelView
from veen.envelope import StreamItem
from veen.errors import Malformed, Rejected, Untrusted
from veen.invariants import NEW_CLIENT, Before, ClientCursor, verify_place
from veen.keystore.identity import Identity
from veen.mmr import EMPTY, Peaks
from veen.msg import Msg
from veen.range_proof import RangeProof, verify_consistency
from veen.receipt import Receipt


def replay(
    session: Session, log: Log, wanted: Range, *, skips: bool = False
) -> Iterator[tuple[Pair, ...]]:
    """The verified pages of a range; the view has moved on when a page comes out.

    It does not move over entries that were not read, unless they are gone and ``skips`` says so.
    """
    view = _view(session, log)
    view.verify()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="veen-verify") as beside:
        fold = _Fold(session, log, wanted.from_seq, beside, skips=skips)
        for page in _existing_pages(session, log, wanted):
            yield fold.page(page)
    refuse_short(log, wanted, fold.size, view)
    if fold.size < wanted.from_seq:
        refuse_other_end(session, log, view)


def _existing_pages(session: Session, log: Log, wanted: Range) -> Iterator[Page]:
    """The pages of a label; none of one that has no entries, which a hub does not know.

    A label whose first entry came after the hub said so is read again, once: when it is still not
    there, retention took the entries away.
    """
    for is_last in (False, True):
        has_begun = False
        try:
            for page in pages(session.api, log, wanted):
                has_begun = True
                yield page
        except HubRefused as error:
            if has_begun or not is_missing(error):
                raise
            if not _has_entries(session, log):
                return
            if is_last:
                raise
        else:
            return


class _Fold:
    def __init__(
        self, session: Session, log: Log, from_seq: int, beside: Executor, *, skips: bool
    ) -> None:
        self._session = session
        self._log = log
        self._label = log.label
        self._signatures = Signatures(session, log.labels, beside)
        self._cursors = Cursors(from_start=from_seq == 1)
        self._peaks: Peaks | None = None
        self._before = from_seq - 1
        self._skips = skips
        self._own = own_client_ids(session.identity)

    @property
    def size(self) -> int:
        """How far it has come."""
        return self._before if self._peaks is None else self._peaks.size

    def page(self, page: Page) -> tuple[Pair, ...]:
        view = _view(self._session, self._log)
        if not page.items:
            return ()
        try:
            pairs = self._verified(page, view)
        except Fork:
            raise
        except Untrusted:
            self._seek_fork(view)
            raise
        self._bring_forward(pairs)
        return pairs

    def _verified(self, page: Page, view: LabelView) -> tuple[Pair, ...]:
        peaks = self._start(view) if self._peaks is None else self._peaks
        held = [one for one in (view.head, view.unlinked) if one is not None]
        pairs = []
        for item in page.items:
            pair = self._pair(item, held)
            client_id = pair.msg.client_id
            before = Before(peaks=peaks, client=self._cursors.of(client_id), grant=None)
            after = verify_place(pair.msg, pair.receipt, before, self._signatures.rules)
            self._cursors.put(client_id, after.client)
            peaks = after.peaks
            pairs.append(pair)
        self._signatures.verify(pairs)
        last = pairs[-1].receipt
        if page.proof is not None:
            with self._placed(last.stream_seq):
                page.proof.verify(
                    leaf_hash=last.leaf_hash, stream_seq=last.stream_seq, root=last.mmr_root
                )
        self._link(view, peaks)
        self._peaks = peaks
        return tuple(pairs)

    def _start(self, view: LabelView) -> Peaks:
        """The peaks before the range, tied to our view; the first receipt must bear them out."""
        if self._before in (0, view.peaks.size):
            return view.peaks if self._before else EMPTY
        with self._placed(self._before):
            if self._before < view.peaks.size:
                return self._peaks_below(view.peaks)
            return self._peaks_above(view.peaks)

    def _peaks_below(self, ours: Peaks) -> Peaks:
        proof = self._proof(self._before, ours.size)
        peaks = proof.before()
        if peaks.size != self._before:
            raise Untrusted(f"the hub sent the peaks at {peaks.size}")
        proof.verify_after(peaks, size=ours.size, root=ours.root())
        return peaks

    def _peaks_above(self, ours: Peaks) -> Peaks:
        proof = self._proof(ours.size, self._before)
        if (proof.to_seq, proof.size) != (ours.size, self._before):
            raise Untrusted(f"the hub sent a proof from {proof.to_seq} to {proof.size}")
        if proof.before() != ours:
            raise Untrusted(f"the hub's peaks at {ours.size} are not ours")
        return proof.after(ours)

    def _pair(self, item: StreamItem, held: Sequence[Receipt]) -> Pair:
        seq = item.stream_seq
        try:
            msg, receipt = Msg.decode(item.msg), Receipt.decode(item.receipt or b"")
        except Malformed as error:
            raise Untrusted(f"{self._log.at(seq)}: {error}") from error
        if receipt.stream_seq != seq or receipt.label != self._label:
            raise Untrusted(f"{self._log.at(seq)}: the receipt is of another place")
        for ours in held:
            if ours.contradicts(receipt):
                raise evidence.keep(self._session, ours, receipt)
        return Pair(msg, receipt)

    def _link(self, view: LabelView, peaks: Peaks) -> None:
        """A page that ends below our view must lead to it."""
        if peaks.size >= view.peaks.size:
            return
        with self._placed(peaks.size):
            verify_consistency(
                self._proof(peaks.size, view.peaks.size),
                old_size=peaks.size,
                old_root=peaks.root(),
                new_size=view.peaks.size,
                new_root=view.peaks.root(),
            )

    def _bring_forward(self, pairs: Sequence[Pair]) -> None:
        """Our view moves to the end of a page that leaves no gap behind it."""
        with self._session.moving:
            view, peaks = _view(self._session, self._log), self._peaks
            if peaks is None or peaks.size <= view.peaks.size:
                return
            if pairs[0].receipt.stream_seq > view.peaks.size + 1 and not self._skips:
                return
            own = [pair.msg for pair in pairs if pair.msg.client_id in self._own]
            passed = view.unlinked is not None and view.unlinked.stream_seq <= peaks.size
            moved = replace(
                view,
                peaks=peaks,
                head=pairs[-1].receipt,
                unlinked=None if passed else view.unlinked,
                cursors=_advanced(view, own),
            )
            self._session.keep(self._label, moved)

    def _seek_fork(self, view: LabelView) -> None:
        """An answer that does not hold: ask what the hub signs now where it signed to us before."""
        for ours in (view.head, view.unlinked):
            if ours is None:
                continue
            with suppress(HubRefused, Rejected, Unreachable, Malformed):
                theirs = self._session.api.receipt(self._label, ours.stream_seq)
                if ours.contradicts(theirs) and is_signed(self._session, theirs):
                    raise evidence.keep(self._session, ours, theirs)

    def _proof(self, old_size: int, new_size: int) -> RangeProof:
        """Both sizes were shown to us, so a hub that has no such proof has changed its mind."""
        try:
            return self._session.api.consistency(self._label, old_size, new_size)
        except HubRefused as error:
            if not is_missing(error):
                raise
            raise Untrusted(f"the hub has {new_size} entries no more: {error}") from error

    @contextmanager
    def _placed(self, seq: int) -> Iterator[None]:
        try:
            yield
        except Untrusted as error:
            raise Untrusted(f"{self._log.at(seq)}: {error}") from error


def own_client_ids(identity: Identity) -> frozenset[bytes]:
    return frozenset({identity.client_id, *(one.client_id for one in identity.retired_client_ids)})


def _view(session: Session, log: Log) -> LabelView:
    return session.view(log.label, log.name, log.epoch)


def _advanced(view: LabelView, own: Sequence[Msg]) -> dict[bytes, ClientCursor]:
    """A cursor only goes forward: what was sent and not read back yet counts too."""
    cursors = dict(view.cursors)
    for msg in own:
        if msg.client_seq > cursors.get(msg.client_id, NEW_CLIENT).client_seq:
            cursors[msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
    return cursors


def _has_entries(session: Session, log: Log) -> bool:
    return exists(session, log.label, 1)
