"""Verified reading of a label: pages checked against the invariants and linked to our view.

A page is returned only if all of it is valid. The next page is fetched while one is verified, and
signatures are verified in two threads. ``ClientCursors`` tracks client sequences in bounded memory.
The end of a range must not be before what the hub has signed to us.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from veen.client.hub_api import HubApi
from veen.client.log_head import LabelLogRef, Pair, exists, is_missing, receipt_at, store_evidence
from veen.client.session import LabelView, Session
from veen.client.transport import Fork, HubRefused, Unreachable
from veen.errors import Malformed, Rejected, Untrusted
from veen.invariants import (
    NEW_CLIENT,
    Before,
    ClientCursor,
    Rules,
    Violation,
    verify_place,
    verify_signatures,
)
from veen.keystore.card import Identity
from veen.label import EpochLabels
from veen.mmr import EMPTY, Peaks
from veen.msg import Msg
from veen.proofs import MmrProof, RangeProof, verify_consistency
from veen.receipt import Receipt
from veen.wire.api import StreamItem, StreamRequest, StreamResponse

MAX_CLIENTS: Final = 16_384
PAGE_ITEMS: Final = 1_000


class ClientCursors:
    """The cursors of the last ``most`` clients.

    An unknown client is new if the range began with the label; after a cursor was evicted
    nothing is known of it.
    """

    def __init__(self, *, from_start: bool, most: int = MAX_CLIENTS) -> None:
        self._known: OrderedDict[bytes, ClientCursor] = OrderedDict()
        self._unknown = NEW_CLIENT if from_start else None
        self._most = most

    def of(self, client_id: bytes) -> ClientCursor | None:
        return self._known.get(client_id, self._unknown)

    def put(self, client_id: bytes, cursor: ClientCursor) -> None:
        self._known[client_id] = cursor
        self._known.move_to_end(client_id)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
            self._unknown = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRange:
    """The range of a label to read, both ends included; without an end, all of it."""

    from_seq: int = 1
    to_seq: int | None = None
    with_proof: bool = False
    page_items: int = PAGE_ITEMS


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Consecutive items, each with a receipt, not verified yet."""

    items: tuple[StreamItem, ...]
    proof: MmrProof | None
    following: int | None
    """The first stream_seq of the next page, if there is one."""


def pages(api: HubApi, log: LabelLogRef, range_: LabelRange) -> Iterator[ItemPage]:
    """The pages of a range; the next is fetched while the caller works on a page."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="veen-page") as pool:
        page = _fetch(api, log, range_, range_.from_seq)
        while page.following is not None:
            ahead = pool.submit(_fetch, api, log, range_, page.following)
            yield page
            page = ahead.result()
        yield page


def _fetch(api: HubApi, log: LabelLogRef, range_: LabelRange, start: int) -> ItemPage:
    request = StreamRequest(
        label=log.label,
        from_seq=start,
        to_seq=range_.to_seq,
        max_items=range_.page_items,
        with_receipts=True,
        with_mmr_proof=range_.with_proof or None,
    )
    answer = api.stream(request)
    _verify_range(answer, log, request)
    _verify_items(answer, log, request)
    _verify_cursor(answer, log, request)
    return ItemPage(answer.items, answer.mmr_proof, answer.next_cursor)


def _verify_range(answer: StreamResponse, log: LabelLogRef, request: StreamRequest) -> None:
    if answer.label != request.label:
        raise Untrusted(
            f"{log.at(request.from_seq)}: the page belongs to label {answer.label.hex()}"
        )
    if (answer.from_seq, answer.to_seq) != (request.from_seq, request.to_seq):
        raise Untrusted(
            f"{log.at(request.from_seq)}: expected the requested page, got {answer.from_seq} to "
            f"{answer.to_seq}"
        )


def _verify_items(answer: StreamResponse, log: LabelLogRef, request: StreamRequest) -> None:
    if request.max_items is not None and len(answer.items) > request.max_items:
        raise Untrusted(
            f"{log.at(request.from_seq)}: expected at most {request.max_items} items, got "
            f"{len(answer.items)}"
        )
    for expected, item in enumerate(answer.items, request.from_seq):
        if item.stream_seq != expected:
            raise Untrusted(f"{log.at(expected)}: expected this stream_seq, got {item.stream_seq}")
        if request.to_seq is not None and expected > request.to_seq:
            raise Untrusted(
                f"{log.at(expected)}: expected entries up to {request.to_seq}, got this one"
            )
        if item.receipt is None:
            raise Untrusted(f"{log.at(expected)}: the entry has no receipt")
    if request.with_mmr_proof and answer.items and answer.mmr_proof is None:
        raise Untrusted(f"{log.at(answer.items[-1].stream_seq)}: the requested proof is missing")


def _verify_cursor(answer: StreamResponse, log: LabelLogRef, request: StreamRequest) -> None:
    following, expected = answer.next_cursor, request.from_seq + len(answer.items)
    if following is None:
        return
    if not answer.items or following != expected:
        raise Untrusted(
            f"{log.at(expected)}: expected the next page to start here, got {following}"
        )
    if request.to_seq is not None and following > request.to_seq:
        raise Untrusted(
            f"{log.at(expected)}: expected the page to end at {request.to_seq}, got more"
        )


def _verify_length(log: LabelLogRef, range_: LabelRange, size: int, view: LabelView) -> None:
    expected = view.seen if range_.to_seq is None else min(view.seen, range_.to_seq)
    if range_.from_seq <= expected and size < expected:
        raise Untrusted(
            f"{log.at(size)}: the log of the hub ends here, although the hub signed {view.seen} "
            "before"
        )


def _verify_end(session: Session, log: LabelLogRef, view: LabelView) -> None:
    """Verify, if there is nothing to read, that the hub still has what it signed last."""
    ours = view.unlinked or view.head
    if ours is None:
        return
    try:
        theirs = receipt_at(session, log, ours.stream_seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        if exists(session, log.label, ours.stream_seq):
            return
        raise Untrusted(f"{log.at(ours.stream_seq)}: the hub no longer has this entry") from error
    if ours.contradicts(theirs):
        raise store_evidence(session, ours, theirs)


class Signatures:
    """Verifies the signatures of pairs; ``rules`` have the hub's keys known so far."""

    def __init__(self, session: Session, labels: EpochLabels, executor: Executor) -> None:
        self._session = session
        self._labels = labels
        self._beside = executor
        self.rules = session.rules(labels)

    def verify(self, pairs: Sequence[Pair]) -> None:
        """Verify pairs, half of them in another thread: libsodium releases the GIL."""
        half = len(pairs) // 2
        others = self._beside.submit(_signed, pairs[half:], self.rules)
        count = _signed(pairs[:half], self.rules)
        self._verify_one_by_one(pairs[count:half])
        self._verify_one_by_one(pairs[half + others.result() :])

    def _verify_one_by_one(self, pairs: Sequence[Pair]) -> None:
        for pair in pairs:
            try:
                verify_signatures(pair.msg, pair.receipt, self.rules)
            except Violation:
                if not self._is_of_new_key(pair.receipt):
                    raise
                verify_signatures(pair.msg, pair.receipt, self.rules)

    def _is_of_new_key(self, receipt: Receipt) -> bool:
        """Whether a new key of the hub signed it, which is fetched."""
        if not is_signed(self._session, receipt):
            return False
        known, self.rules = self.rules, self._session.rules(self._labels)
        return self.rules.hub != known.hub


def is_signed(session: Session, receipt: Receipt) -> bool:
    try:
        session.verify_receipt(receipt)
    except Untrusted:
        return False
    return True


def _signed(pairs: Sequence[Pair], rules: Rules) -> int:
    """The number of leading pairs with valid signatures."""
    for count, pair in enumerate(pairs):
        try:
            verify_signatures(pair.msg, pair.receipt, rules)
        except Violation:
            return count
    return len(pairs)


def replay(
    session: Session, log: LabelLogRef, range_: LabelRange, *, skips: bool = False
) -> Iterator[tuple[Pair, ...]]:
    """The verified pages of a range; the view is advanced before a page is yielded.

    It does not advance over entries that were not read, unless ``skips`` says that they are
    pruned.
    """
    view = _view(session, log)
    view.verify()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="veen-verify") as beside:
        fold = _Fold(session, log, range_.from_seq, beside, skips=skips)
        for page in _existing_pages(session, log, range_):
            yield fold.page(page)
    _verify_length(log, range_, fold.size, view)
    if fold.size < range_.from_seq:
        _verify_end(session, log, view)


def _existing_pages(session: Session, log: LabelLogRef, range_: LabelRange) -> Iterator[ItemPage]:
    """The pages of a label; none if it has no entries, as a hub does not know such a label.

    If its first entry came after the hub's refusal, it is read again once; if it is refused again,
    the entries are pruned.
    """
    for is_last in (False, True):
        has_begun = False
        try:
            for page in pages(session.api, log, range_):
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
        self, session: Session, log: LabelLogRef, from_seq: int, beside: Executor, *, skips: bool
    ) -> None:
        self._session = session
        self._log = log
        self._label = log.label
        self._signatures = Signatures(session, log.labels, beside)
        self._cursors = ClientCursors(from_start=from_seq == 1)
        self._peaks: Peaks | None = None
        self._before = from_seq - 1
        self._skips = skips
        self._own = own_client_ids(session.identity)

    @property
    def size(self) -> int:
        """The size up to which entries are verified."""
        return self._before if self._peaks is None else self._peaks.size

    def page(self, page: ItemPage) -> tuple[Pair, ...]:
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

    def _verified(self, page: ItemPage, view: LabelView) -> tuple[Pair, ...]:
        peaks = self._start(view) if self._peaks is None else self._peaks
        receipts = [entry for entry in (view.head, view.unlinked) if entry is not None]
        pairs = []
        for entry in page.items:
            pair = self._pair(entry, receipts)
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
        """The peaks before the range, linked to our view; the first receipt confirms them."""
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
            raise Untrusted(f"the hub sent the peaks at another size, {peaks.size}")
        proof.verify_after(peaks, size=ours.size, root=ours.root())
        return peaks

    def _peaks_above(self, ours: Peaks) -> Peaks:
        proof = self._proof(ours.size, self._before)
        if (proof.to_seq, proof.size) != (ours.size, self._before):
            raise Untrusted(
                f"the hub sent a consistency proof for another range, {proof.to_seq} to "
                f"{proof.size}"
            )
        if proof.before() != ours:
            raise Untrusted(f"the peaks of the hub at {ours.size} differ from those known here")
        return proof.after(ours)

    def _pair(self, item: StreamItem, held: Sequence[Receipt]) -> Pair:
        seq = item.stream_seq
        try:
            msg, receipt = Msg.decode(item.msg), Receipt.decode(item.receipt or b"")
        except Malformed as error:
            raise Untrusted(f"{self._log.at(seq)}: {error}") from error
        if receipt.stream_seq != seq or receipt.label != self._label:
            raise Untrusted(f"{self._log.at(seq)}: the receipt has another stream_seq")
        for ours in held:
            if ours.contradicts(receipt):
                raise store_evidence(self._session, ours, receipt)
        return Pair(msg, receipt)

    def _link(self, view: LabelView, peaks: Peaks) -> None:
        """Verify that a page that ends below our view leads to it."""
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
        """Advance our view to the end of a page, unless that leaves a gap."""
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
        """After an invalid answer, look for a fork: compare receipts with those we have."""
        for ours in (view.head, view.unlinked):
            if ours is None:
                continue
            with suppress(HubRefused, Rejected, Unreachable, Malformed):
                theirs = self._session.api.receipt(self._label, ours.stream_seq)
                if ours.contradicts(theirs) and is_signed(self._session, theirs):
                    raise store_evidence(self._session, ours, theirs)

    def _proof(self, old_size: int, new_size: int) -> RangeProof:
        """A consistency proof. The hub has signed both sizes, so it must have it."""
        try:
            return self._session.api.consistency(self._label, old_size, new_size)
        except HubRefused as error:
            if not is_missing(error):
                raise
            raise Untrusted(f"the hub no longer has {new_size} entries: {error}") from error

    @contextmanager
    def _placed(self, seq: int) -> Iterator[None]:
        try:
            yield
        except Untrusted as error:
            raise Untrusted(f"{self._log.at(seq)}: {error}") from error


def own_client_ids(identity: Identity) -> frozenset[bytes]:
    retired = (client.client_id for client in identity.retired_client_ids)
    return frozenset({identity.client_id, *retired})


def _view(session: Session, log: LabelLogRef) -> LabelView:
    return session.view(log.label, log.name, log.epoch)


def _advanced(view: LabelView, own: Sequence[Msg]) -> dict[bytes, ClientCursor]:
    """The cursors after our own messages; a cursor never goes back."""
    cursors = dict(view.cursors)
    for msg in own:
        if msg.client_seq > cursors.get(msg.client_id, NEW_CLIENT).client_seq:
            cursors[msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
    return cursors


def _has_entries(session: Session, log: LabelLogRef) -> bool:
    return exists(session, log.label, 1)
