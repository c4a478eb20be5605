"""Sending: queued messages get a sequence position, are submitted, and are acknowledged in order.

Nothing is sent before it is journalled, nothing is deleted before the state with its receipt is on
disk, and an event never has attempts at two positions that could both be accepted.
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
    FailureHandler,
    ReceiptVerifier,
    SubmitFailure,
    SubmitRefusal,
)
from veen.client.transport import HubRefused, StateLost
from veen.errors import Rejected, Untrusted, WrongSize

BATCH: Final = 256
BATCH_BYTES: Final = 8 << 20
_log = logging.getLogger(__name__)

Feed = Callable[[], int]
"""Gives the id of the last event to send; it may add events to the outbox first."""


Answer = Future[list[Result]]


@dataclass(frozen=True, slots=True)
class SealedAhead:
    """The next batch, sealed while the current one is sent; it is not journalled yet."""

    position: SequencePosition
    sealed: Future[list[SealedMessage]]


class Sender:
    """Sends the outbox of a client to its hub.

    In each label the first message is sent alone: if this directory is a copy, that is detected
    before more is sent.
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
        self._failures = FailureHandler(session, outbox, sealer)
        self._met: set[tuple[bytes, bytes]] = set()

    def drain(
        self, queue: StreamQueue, upto: int, feed: Feed, *, patient: bool
    ) -> Iterator[Acknowledged]:
        """Send a queue up to an event, then up to the event that ``feed`` gives.

        What is yielded is settled, late events too; after an error the rest stays queued. Without
        ``patient``
        a refusal that a retry would not change is raised at once.
        """
        with ThreadPoolExecutor(max_workers=2, thread_name_prefix="veen-send") as pool:
            slots = self._outbox.slots(queue.key, upto, self._batch)
            while slots or (slots := self._assign(queue, upto)):
                first = slots[0].current
                if (first.label, first.client_id) not in self._met:
                    view = self._session.view(first.label, queue.name, first.epoch)
                    verify(self._session, view)
                answer = pool.submit(self._session.api.submit_batch, _messages(self._group(slots)))
                upto = feed()
                ahead = self._seal_ahead(pool, queue, slots, upto)
                in_order = yield from self._deliver(queue, slots, answer, patient)
                slots = self._take_ahead(queue, ahead) if in_order and ahead else []
                slots = slots or self._outbox.slots(queue.key, upto, self._batch)

    def _assign(self, queue: StreamQueue, upto: int) -> list[InFlight]:
        """Assign positions to the next events; in a label not verified yet, to the first alone."""
        position = self._sealer.position(queue)
        place = position.label, self._session.client_id
        events = self._waiting(queue, 0, upto, self._batch if place in self._met else 1)
        if not events:
            return []
        first = max(position.client_seq, self._outbox.last_seq(*place) + 1)
        return self._journal(self._sealer.seal(replace(position, client_seq=first), events))

    def _seal_ahead(
        self, pool: ThreadPoolExecutor, queue: StreamQueue, slots: Sequence[InFlight], upto: int
    ) -> SealedAhead | None:
        """Seal the next batch in parallel, if nothing else is to be sent before it."""
        last, position = slots[-1].current, self._sealer.position(queue)
        place = position.label, self._session.client_id
        if (last.label, last.client_id) != place:
            return None
        if self._outbox.last_seq(*place) != last.client_seq:
            return None
        try:
            events = self._waiting(queue, last.event_id, upto, self._batch)
        except WrongSize:
            # It is raised once the events before it are acknowledged.
            return None
        if not events:
            return None
        position = replace(position, client_seq=last.client_seq + 1)
        return SealedAhead(position, pool.submit(self._sealer.seal, position, events))

    def _take_ahead(self, queue: StreamQueue, ahead: SealedAhead) -> list[InFlight]:
        """The batch that was sealed ahead, if its position is still the next."""
        position = self._sealer.position(queue)
        client_id = self._session.client_id
        cursor = self._session.view(position.label, queue.name, position.epoch).cursor(client_id)
        is_next = (ahead.position.label, ahead.position.client_seq) == (
            position.label,
            position.client_seq,
        )
        if not is_next or ahead.position.prev_ack < cursor.prev_ack:
            return []
        return self._journal(ahead.sealed.result())

    def _waiting(
        self, queue: StreamQueue, after: int, upto: int, max_count: int
    ) -> list[tuple[int, QueuedMessage]]:
        """The next events, up to the first that is above the hub's limits."""
        events = self._outbox.waiting(queue.key, after, upto, max_count, BATCH_BYTES)
        for count, (_, message) in enumerate(events):
            try:
                message.check_sizes(self._session.limits)
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
        """Send until all are acknowledged; False if some need other positions."""
        tries = 0
        while slots:
            acknowledged, failure = self._ask(queue, self._group(slots), answer)
            answer = None
            if acknowledged:
                slots, tries = slots[len(acknowledged) :], 0
                yield from acknowledged
                if acknowledged[-1].is_late:
                    self._sealer.discard(slot.current for slot in slots)
                    return False
            if failure is not None:
                remaining = self._failures.handle(queue, slots, failure, tries, patient=patient)
                if remaining is None:
                    return False
                slots, tries = remaining, tries + 1
        return True

    def _group(self, slots: Sequence[InFlight]) -> list[InFlight]:
        """The slots of one request: of one label and client; a shared position goes alone."""
        place = slots[0].current.label, slots[0].current.client_id
        if place not in self._met or slots[0].is_shared:
            return [slots[0]]
        same = takewhile(
            lambda slot: (slot.current.label, slot.current.client_id) == place, slots[: self._batch]
        )
        return list(takewhile(lambda slot: not slot.is_shared, same))

    def _ask(
        self, queue: StreamQueue, group: Sequence[InFlight], answer: Answer | None
    ) -> tuple[list[Acknowledged], SubmitFailure | None]:
        """Submit, or wait for the answer; settle what is acknowledged up to the first failure."""
        first = group[0].current
        view = self._session.view(first.label, queue.name, first.epoch)
        try:
            results = (
                answer.result() if answer else self._session.api.submit_batch(_messages(group))
            )
        except (Rejected, HubRefused) as error:
            return [], SubmitRefusal(error)
        verifier = ReceiptVerifier(self._session, view)
        acknowledged, failure = verifier.verify(group, results)
        if acknowledged:
            self._settle(queue, verifier, acknowledged)
            self._met.add((first.label, first.client_id))
        return acknowledged, failure

    def _settle(
        self, queue: StreamQueue, verifier: ReceiptVerifier, settled: Sequence[Acknowledged]
    ) -> None:
        """Store the state first: after a crash in between the submit is repeated."""
        self._session.keep(settled[0].receipt.label, verifier.outcome())
        self._book.append(event.receipt for event in settled)
        if settled[0].is_late:
            # A shared position is sent alone, so nothing after it has been sent.
            self._settle_late(queue, settled[0])
        else:
            self._outbox.settle([event.slot for event in settled])
        for event in settled:
            if len(event.slot.attempts) > 1:
                self._sealer.discard(
                    other for other in event.slot.attempts if other is not event.attempt
                )

    def _settle_late(self, queue: StreamQueue, acknowledged: Acknowledged) -> None:
        late = Late(acknowledged.attempt.event_id, acknowledged.receipt)
        self._outbox.settle_late(acknowledged.slot, late, queue.key)
        _log.warning(
            "event %d was withdrawn, but is in the log at stream_seq %d",
            late.event_id, late.receipt.stream_seq,
        )  # fmt: skip


def verify(session: Session, view: LabelView) -> None:
    """Raise StateLost unless a view and its receipts are valid."""
    try:
        view.verify()
        for receipt in filter(None, (view.head, view.unlinked)):
            session.verify_receipt(receipt)
    except Untrusted as error:
        raise StateLost(
            f"{view.stream}: state.json is damaged ({error}); run veen resync"
        ) from error


def _messages(group: Sequence[InFlight]) -> list[bytes]:
    return [slot.current.msg for slot in group]
