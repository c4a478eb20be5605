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

from veen.client.hub_api import Result
from veen.client.outbox import Late, Outbox
from veen.client.queued import InFlight, QueuedMessage, SubmitAttempt
from veen.client.receipts import ReceiptBook
from veen.client.sealer import MessageSealer, SealedMessage, SequencePosition, StreamQueue
from veen.client.session import LabelView, Session
from veen.client.submit_result import (
    Acknowledged,
    ReceiptVerifier,
    Remedy,
    SubmitFailure,
    SubmitRefusal,
)
from veen.client.transport import HubRefused, StateLost
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

    position: SequencePosition
    sealed: Future[list[SealedMessage]]


class Sender:
    """Drains the outbox of one client to one hub.

    In each label the first message goes alone: were this directory a copy, it would show before
    more is sent.
    """

    def __init__(
        self,
        session: Session,
        outbox: Outbox,
        sealer: MessageSealer,
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

    def drain(
        self, queue: StreamQueue, upto: int, feed: Feed, *, patient: bool
    ) -> Iterator[Acknowledged]:
        """Send a lane up to an event, and then to the one that ``feed`` names, while there is any.

        What is yielded is settled; what is raised left the rest. One that is not ``patient``
        raises at once a refusal that waiting would not cure.
        """
        with ThreadPoolExecutor(max_workers=2, thread_name_prefix="veen-send") as pool:
            slots = self._outbox.slots(queue.key, upto, self._batch)
            while slots or (slots := self._board(queue, upto)):
                self._verify(queue, slots[0].current)
                answer = pool.submit(self._submit, self._group(slots))
                upto = feed()
                ahead = self._ahead(pool, queue, slots, upto)
                in_order = yield from self._deliver(queue, slots, answer, patient)
                slots = self._take(queue, ahead) if in_order and ahead else []
                slots = slots or self._outbox.slots(queue.key, upto, self._batch)

    def _board(self, queue: StreamQueue, upto: int) -> list[InFlight]:
        """Give the next events their places, for ever; in a label not met yet, one of them."""
        position = self._sealer.position(queue)
        place = position.label, self._session.identity.client_id
        events = self._waiting(queue, 0, upto, self._batch if place in self._met else 1)
        if not events:
            return []
        first = max(position.client_seq, self._outbox.last_seq(*place) + 1)
        return self._journal(self._sealer.seal(replace(position, client_seq=first), events))

    def _ahead(
        self, pool: ThreadPoolExecutor, queue: StreamQueue, slots: Sequence[InFlight], upto: int
    ) -> Ahead | None:
        """Seal the next batch meanwhile, when nothing else is to be sent before it."""
        last, position = slots[-1].current, self._sealer.position(queue)
        place = position.label, self._session.identity.client_id
        if (last.label, last.client_id) != place:
            return None
        if self._outbox.last_seq(*place) != last.client_seq:
            return None
        try:
            events = self._waiting(queue, last.event_id, upto, self._batch)
        except WrongSize:
            # Its turn comes when those before it have landed.
            return None
        if not events:
            return None
        position = replace(position, client_seq=last.client_seq + 1)
        return Ahead(position, pool.submit(self._sealer.seal, position, events))

    def _take(self, queue: StreamQueue, ahead: Ahead) -> list[InFlight]:
        """The batch that was sealed ahead, if its place is still the next one."""
        position = self._sealer.position(queue)
        client_id = self._session.identity.client_id
        cursor = self._session.view(position.label, queue.name, position.epoch).cursor(client_id)
        is_next = (ahead.position.label, ahead.position.client_seq) == (
            position.label,
            position.client_seq,
        )
        if not is_next or ahead.position.prev_ack < cursor.prev_ack:
            return []
        return self._journal(ahead.sealed.result())

    def _waiting(
        self, queue: StreamQueue, after: int, upto: int, most: int
    ) -> list[tuple[int, QueuedMessage]]:
        """The next events, up to one that the limits of the hub do not let pass."""
        events = self._outbox.waiting(queue.key, after, upto, most, BATCH_BYTES)
        for count, (_, draft) in enumerate(events):
            try:
                draft.check_sizes(self._session.limits)
            except WrongSize:
                if count == 0:
                    raise
                return events[:count]
        return events

    def _journal(self, sealed: Sequence[SealedMessage]) -> list[InFlight]:
        attempts = self._sealer.store(sealed)
        self._outbox.journal(attempts)
        others: dict[int, tuple[SubmitAttempt, ...]] = {}
        for attempt in self._outbox.withdrawn(attempts[0].label, attempts[0].client_id):
            others[attempt.client_seq] = (*others.get(attempt.client_seq, ()), attempt)
        return [
            InFlight((*others.get(submit_attempt.client_seq, ()), submit_attempt))
            for submit_attempt in attempts
        ]

    def _deliver(
        self, queue: StreamQueue, slots: list[InFlight], answer: Answer | None, patient: bool
    ) -> Generator[Acknowledged, None, bool]:
        """Send until all have landed; False when some of them now wait for other places."""
        tries = 0
        while slots:
            landed, trouble = self._ask(queue, self._group(slots), answer)
            answer = None
            if landed:
                slots, tries = slots[len(landed) :], 0
                yield from (item for item in landed if not item.is_late)
                if landed[-1].is_late:
                    self._sealer.discard(slot.current for slot in slots)
                    return False
            if trouble is not None:
                cured = self._remedy.cure(queue, slots, trouble, tries, patient=patient)
                if cured is None:
                    return False
                slots, tries = cured, tries + 1
        return True

    def _verify(self, queue: StreamQueue, submit_attempt: SubmitAttempt) -> None:
        """Before the first word in a label: what we remember of it must hold in itself."""
        if (submit_attempt.label, submit_attempt.client_id) not in self._met:
            verify(
                self._session,
                self._session.view(submit_attempt.label, queue.name, submit_attempt.epoch),
            )

    def _group(self, slots: Sequence[InFlight]) -> list[InFlight]:
        """What may go in one request: one label and client, and alone what may be taken."""
        place = slots[0].label, slots[0].client_id
        if place not in self._met or slots[0].is_shared:
            return [slots[0]]
        same = takewhile(lambda item: (item.label, item.client_id) == place, slots[: self._batch])
        return list(takewhile(lambda item: not item.is_shared, same))

    def _submit(self, group: Sequence[InFlight]) -> list[Result]:
        return self._session.api.submit_batch(
            [submit_attempt.current.msg for submit_attempt in group]
        )

    def _ask(
        self, queue: StreamQueue, group: Sequence[InFlight], answer: Answer | None
    ) -> tuple[list[Acknowledged], SubmitFailure | None]:
        """One request, maybe made already; what landed is settled, up to the first that did not."""
        first = group[0].current
        view = self._session.view(first.label, queue.name, first.epoch)
        try:
            results = answer.result() if answer else self._submit(group)
        except (Rejected, HubRefused) as error:
            return [], SubmitRefusal(error)
        judge = ReceiptVerifier(self._session, view)
        landed, trouble = _judged(judge, group, results)
        if landed:
            self._settle(queue, judge, landed)
            self._met.add((first.label, first.client_id))
        return landed, trouble

    def _settle(
        self, queue: StreamQueue, judge: ReceiptVerifier, landed: Sequence[Acknowledged]
    ) -> None:
        """The state first: a crash in between only makes us ask again."""
        self._session.keep(landed[0].receipt.label, judge.outcome())
        self._book.append(acknowledged.receipt for acknowledged in landed)
        if landed[0].is_late:
            # A shared place is asked for alone, and what was to follow it has never left.
            self._settle_late(queue, landed[0])
        else:
            self._outbox.settle([acknowledged.slot for acknowledged in landed])
        for acknowledged in landed:
            self._sealer.discard(
                other for other in acknowledged.slot.attempts if other is not acknowledged.attempt
            )

    def _settle_late(self, queue: StreamQueue, landed: Acknowledged) -> None:
        late = Late(landed.attempt.event_id, landed.receipt)
        self._outbox.settle_late(landed.slot, late, queue.key)
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
    judge: ReceiptVerifier, group: Sequence[InFlight], results: Sequence[Result]
) -> tuple[list[Acknowledged], SubmitFailure | None]:
    landed: list[Acknowledged] = []
    for slot, result in zip(group, results, strict=True):
        verdict = judge.verdict(slot, result)
        if not isinstance(verdict, Acknowledged):
            return landed, verdict
        landed.append(verdict)
    return landed, None
