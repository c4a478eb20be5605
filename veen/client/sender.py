"""Sending: drafts become flights, flights are answered, and each event lands once and in order.

Nothing leaves before it is journalled, nothing is forgotten before the state that knows its
receipt is on disk, and an event is never on its way to two places that could both take it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from veen.client.draft import Draft
from veen.client.errors import HubRefused, StateLost
from veen.client.flight import Flight, Slot
from veen.client.hub_api import Result
from veen.client.outbox import Late, Outbox
from veen.client.receipt_book import ReceiptBook
from veen.client.remedy import Remedy
from veen.client.sealer import Berth, Lane, Sealed, Sealer
from veen.client.session import Session
from veen.client.verdict import Judge, Landed, Refusal, Trouble
from veen.client.view import LabelView
from veen.errors import Rejected, Untrusted, WrongSize

BATCH: Final = 256
BATCH_BYTES: Final = 8 << 20
_log = logging.getLogger(__name__)

Feed = Callable[[], int]
"""Names the last event to send; it may add events to the outbox first."""


Answer = Future[list[Result]]


@dataclass(frozen=True, slots=True)
class Ahead:
    """The next batch, sealed while the one before is on its way; it is not journalled yet."""

    berth: Berth
    sealed: Future[list[Sealed]]


class Sender:
    """Drains the outbox of one client to one hub.

    In each label the first message goes alone: were this directory a copy, it would show before
    more is sent.
    """

    def __init__(
        self,
        session: Session,
        outbox: Outbox,
        sealer: Sealer,
        book: ReceiptBook,
        batch: int,
    ) -> None:
        self._session = session
        self._outbox = outbox
        self._sealer = sealer
        self._book = book
        self._batch = batch
        self._remedy = Remedy(session, outbox, sealer)
        self._met: set[tuple[bytes, bytes]] = set()

    def drain(self, lane: Lane, upto: int, feed: Feed, *, patient: bool) -> Iterator[Landed]:
        """Send a lane up to an event, and then to the one that ``feed`` names, while there is any.

        What is yielded is settled; what is raised left the rest. One that is not ``patient``
        raises at once a refusal that waiting would not cure.
        """
        with ThreadPoolExecutor(max_workers=2, thread_name_prefix="veen-send") as pool:
            slots = self._outbox.slots(lane.key, upto, self._batch)
            while slots or (slots := self._board(lane, upto)):
                self._verify(lane, slots[0].current)
                answer = pool.submit(self._submit, self._group(slots))
                upto = feed()
                ahead = self._ahead(pool, lane, slots, upto)
                in_order = yield from self._deliver(lane, slots, answer, patient)
                slots = self._take(lane, ahead) if in_order and ahead else []
                slots = slots or self._outbox.slots(lane.key, upto, self._batch)

    def _board(self, lane: Lane, upto: int) -> list[Slot]:
        """Give the next events their places, for ever; in a label not met yet, one of them."""
        berth = self._sealer.berth(lane)
        place = berth.label, self._session.identity.client_id
        events = self._waiting(lane, 0, upto, self._batch if place in self._met else 1)
        if not events:
            return []
        first = max(berth.client_seq, self._outbox.last_seq(*place) + 1)
        return self._journal(self._sealer.seal(replace(berth, client_seq=first), events))

    def _ahead(
        self, pool: ThreadPoolExecutor, lane: Lane, slots: Sequence[Slot], upto: int
    ) -> Ahead | None:
        """Seal the next batch meanwhile, when nothing else is to be sent before it."""
        last, berth = slots[-1].current, self._sealer.berth(lane)
        place = berth.label, self._session.identity.client_id
        if (last.label, last.client_id) != place:
            return None
        if self._outbox.last_seq(*place) != last.client_seq:
            return None
        try:
            events = self._waiting(lane, last.event_id, upto, self._batch)
        except WrongSize:
            # Its turn comes when those before it have landed.
            return None
        if not events:
            return None
        berth = replace(berth, client_seq=last.client_seq + 1)
        return Ahead(berth, pool.submit(self._sealer.seal, berth, events))

    def _take(self, lane: Lane, ahead: Ahead) -> list[Slot]:
        """The batch that was sealed ahead, if its place is still the next one."""
        berth = self._sealer.berth(lane)
        client_id = self._session.identity.client_id
        cursor = self._session.view(berth.label, lane.name, berth.epoch).cursor(client_id)
        is_next = (ahead.berth.label, ahead.berth.client_seq) == (berth.label, berth.client_seq)
        if not is_next or ahead.berth.prev_ack < cursor.prev_ack:
            return []
        return self._journal(ahead.sealed.result())

    def _waiting(self, lane: Lane, after: int, upto: int, most: int) -> list[tuple[int, Draft]]:
        """The next events, up to one that the limits of the hub do not let pass."""
        events = self._outbox.waiting(lane.key, after, upto, most, BATCH_BYTES)
        for count, (_, draft) in enumerate(events):
            try:
                draft.check_sizes(self._session.limits)
            except WrongSize:
                if count == 0:
                    raise
                return events[:count]
        return events

    def _journal(self, sealed: Sequence[Sealed]) -> list[Slot]:
        flights = self._sealer.store(sealed)
        self._outbox.journal(flights)
        others: dict[int, tuple[Flight, ...]] = {}
        for one in self._outbox.withdrawn(flights[0].label, flights[0].client_id):
            others[one.client_seq] = (*others.get(one.client_seq, ()), one)
        return [Slot((*others.get(one.client_seq, ()), one)) for one in flights]

    def _deliver(
        self, lane: Lane, slots: list[Slot], answer: Answer | None, patient: bool
    ) -> Generator[Landed, None, bool]:
        """Send until all have landed; False when some of them now wait for other places."""
        tries = 0
        while slots:
            landed, trouble = self._ask(lane, self._group(slots), answer)
            answer = None
            if landed:
                slots, tries = slots[len(landed) :], 0
                yield from (one for one in landed if not one.is_late)
                if landed[-1].is_late:
                    self._sealer.discard(one.current for one in slots)
                    return False
            if trouble is not None:
                cured = self._remedy.cure(lane, slots, trouble, tries, patient=patient)
                if cured is None:
                    return False
                slots, tries = cured, tries + 1
        return True

    def _verify(self, lane: Lane, flight: Flight) -> None:
        """Before the first word in a label: what we remember of it must hold in itself."""
        if (flight.label, flight.client_id) not in self._met:
            verify(self._session, self._session.view(flight.label, lane.name, flight.epoch))

    def _group(self, slots: Sequence[Slot]) -> list[Slot]:
        """What may go in one request: one label and client, and alone what may be taken."""
        place = slots[0].label, slots[0].client_id
        if place not in self._met or slots[0].is_shared:
            return [slots[0]]
        same = takewhile(lambda one: (one.label, one.client_id) == place, slots[: self._batch])
        return list(takewhile(lambda one: not one.is_shared, same))

    def _submit(self, group: Sequence[Slot]) -> list[Result]:
        return self._session.api.submit_batch([one.current.msg for one in group])

    def _ask(
        self, lane: Lane, group: Sequence[Slot], answer: Answer | None
    ) -> tuple[list[Landed], Trouble | None]:
        """One request, maybe made already; what landed is settled, up to the first that did not."""
        first = group[0].current
        view = self._session.view(first.label, lane.name, first.epoch)
        try:
            results = answer.result() if answer else self._submit(group)
        except (Rejected, HubRefused) as error:
            return [], Refusal(error)
        judge = Judge(self._session, view)
        landed, trouble = _judged(judge, group, results)
        if landed:
            self._settle(lane, judge, landed)
            self._met.add((first.label, first.client_id))
        return landed, trouble

    def _settle(self, lane: Lane, judge: Judge, landed: Sequence[Landed]) -> None:
        """The state first: a crash in between only makes us ask again."""
        self._session.keep(landed[0].receipt.label, judge.outcome())
        self._book.append(one.receipt for one in landed)
        if landed[0].is_late:
            # A shared place is asked for alone, and what was to follow it has never left.
            self._settle_late(lane, landed[0])
        else:
            self._outbox.settle([one.slot for one in landed])
        for one in landed:
            self._sealer.discard(other for other in one.slot.attempts if other is not one.attempt)

    def _settle_late(self, lane: Lane, landed: Landed) -> None:
        late = Late(landed.attempt.event_id, landed.receipt)
        self._outbox.settle_late(landed.slot, late, lane.key)
        _log.warning(
            "event %d had been withdrawn, and stands at stream_seq %d all the same",
            late.event_id, late.receipt.stream_seq,
        )  # fmt: skip


def verify(session: Session, view: LabelView) -> None:
    """Refuse a view that its receipts, or they themselves, do not bear out."""
    try:
        view.verify()
        for receipt in filter(None, (view.head, view.unlinked)):
            session.verify_receipt(receipt)
    except Untrusted as error:
        raise StateLost(
            f"{view.stream}: state.json is damaged ({error}); run veen resync"
        ) from error


def _judged(
    judge: Judge, group: Sequence[Slot], results: Sequence[Result]
) -> tuple[list[Landed], Trouble | None]:
    landed: list[Landed] = []
    for slot, result in zip(group, results, strict=True):
        verdict = judge.verdict(slot, result)
        if not isinstance(verdict, Landed):
            return landed, verdict
        landed.append(verdict)
    return landed, None
