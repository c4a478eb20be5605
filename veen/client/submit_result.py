"""Answers to submitted messages: verification of receipts, and the handling of failures.

``ReceiptVerifier`` verifies the receipts of a request. ``FailureHandler`` decides after a failure:
wait and retry, seal again, release the position, or give up. A refusal is not signed: it may delay
an event, but never leads to an event at two positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from veen.client.hub_api import Result
from veen.client.log_head import store_evidence
from veen.client.outbox import Outbox
from veen.client.queued import InFlight, SubmitAttempt
from veen.client.sealer import MessageSealer, SequencePosition, StreamQueue
from veen.client.session import LabelView, Session
from veen.client.transport import MAX_WAIT_SEC, HubRefused, StateLost, Unreachable
from veen.errors import Code, Failure, Malformed, Rejected, Untrusted, VeenError
from veen.invariants import ClientCursor
from veen.msg import Msg
from veen.receipt import Receipt
from veen.wire.api import StreamRequest

_IN_THE_LOG = (Failure.DUPLICATE, Failure.PREV_ACK)
_UNVERIFIABLE = (Untrusted, Malformed, Rejected, HubRefused, Unreachable)
_TRANSIENT: Final = {Code.RATE.value, Code.UNAVAILABLE.value, Code.SIG.value, Code.CONFLICT.value}
_CAPABILITY_FAILURES: Final = {
    Failure.CAP_MISSING, Failure.CAP_INVALID, Failure.CAP_TTL, Failure.AUTH_REF,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An acknowledged slot, with the accepted attempt and its receipt."""

    slot: InFlight
    attempt: SubmitAttempt
    receipt: Receipt
    size: int

    @property
    def is_late(self) -> bool:
        return self.attempt.event_id != self.slot.current.event_id


@dataclass(frozen=True, slots=True)
class SubmitRefusal:
    """A refusal by the hub, which is not authenticated."""

    error: Rejected | HubRefused


@dataclass(frozen=True, slots=True)
class Doubt:
    """An answer that is invalid: truncated, altered, or of another message."""

    error: VeenError


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """A valid receipt of a message that we did not send, at our position."""

    receipt: Receipt


SubmitFailure = SubmitRefusal | Doubt | ForeignMessage


class ReceiptVerifier:
    """Verifies the answers to a request in order, and advances the view of the label."""

    def __init__(self, session: Session, view: LabelView) -> None:
        self._session = session
        self._may_read = True
        self._last: SubmitAttempt | None = None
        self.view = view

    def verify(
        self, group: Sequence[InFlight], results: Sequence[Result]
    ) -> tuple[list[Acknowledged], SubmitFailure | None]:
        """What is acknowledged, up to the first failure."""
        acknowledged: list[Acknowledged] = []
        for slot, result in zip(group, results, strict=True):
            verdict = self.verdict(slot, result)
            if not isinstance(verdict, Acknowledged):
                return acknowledged, verdict
            acknowledged.append(verdict)
        return acknowledged, None

    def verdict(self, slot: InFlight, result: Result) -> Acknowledged | SubmitFailure:
        raw = result if isinstance(result, bytes) else _first_receipt(result)
        if raw is None:
            return SubmitRefusal(result)  # type: ignore[arg-type]
        try:
            receipt = Receipt.decode(raw)
        except Malformed as error:
            return Doubt(error)
        try:
            return self._of_receipt(slot, receipt, is_new=isinstance(result, bytes))
        except _Doubtful as doubt:
            return Doubt(doubt.error)

    def _of_receipt(
        self, slot: InFlight, receipt: Receipt, *, is_new: bool
    ) -> Acknowledged | SubmitFailure:
        attempt = slot.attempt(receipt.leaf_hash)
        if receipt.label != slot.current.label or (attempt is None and is_new):
            return Doubt(Untrusted(f"receipt {receipt.stream_seq} belongs to another message"))
        try:
            self._session.verify_receipt(receipt)
        except _UNVERIFIABLE as error:
            return Doubt(error)
        if attempt is None:
            return ForeignMessage(receipt)
        self._verify_no_fork(receipt)
        if receipt.stream_seq <= attempt.prev_ack:
            raise Untrusted(
                f"the hub signed stream_seq {receipt.stream_seq} for a message "
                f"that was sent after {attempt.prev_ack} had been seen"
            )
        self.view = self._moved(receipt)
        self._last = attempt
        return Acknowledged(slot, attempt, receipt, self.view.peaks.size)

    def _verify_no_fork(self, receipt: Receipt) -> None:
        for known in (self.view.head, self.view.unlinked):
            if known is not None and known.contradicts(receipt):
                raise store_evidence(self._session, known, receipt)

    def _moved(self, receipt: Receipt) -> LabelView:
        """The view with a receipt: I3 if it is the next, otherwise by a consistency proof."""
        seq, view = receipt.stream_seq, self.view
        if seq <= view.peaks.size:
            return view
        if seq == view.peaks.size + 1:
            return view.appended(receipt)
        if self._may_read:
            try:
                return self._linked(receipt)
            except HubRefused as error:
                if not error.is_about_access:
                    raise _Doubtful(error) from error
                self._may_read = False
            except _UNVERIFIABLE as error:
                raise _Doubtful(error) from error
        return view if seq <= view.seen else view.noted(receipt)

    def _linked(self, receipt: Receipt) -> LabelView:
        """Link an unlinked receipt first: it must be of the same history."""
        view, noted = self.view, self.view.unlinked
        if noted is not None and view.peaks.size < noted.stream_seq < receipt.stream_seq:
            view = self._link(view, noted)
        return self._link(view, receipt)

    def _link(self, view: LabelView, receipt: Receipt) -> LabelView:
        before = receipt.stream_seq - 1
        if before == view.peaks.size:
            return view.appended(receipt)
        proof = self._session.api.consistency(receipt.label, view.peaks.size, before)
        return view.linked(proof, receipt)

    def outcome(self) -> LabelView:
        """The view after all acknowledged messages, with the cursor of their client."""
        if self._last is None:
            return self.view
        last, known = self._last, self.view.cursor(self._last.client_id)
        if last.client_seq <= known.client_seq:
            return self.view
        cursor = ClientCursor(last.client_seq, max(last.prev_ack, known.prev_ack))
        return self.view.with_cursor(last.client_id, cursor)


class _Doubtful(Exception):
    def __init__(self, error: VeenError) -> None:
        super().__init__(str(error))
        self.error = error


def _first_receipt(result: Rejected | HubRefused) -> bytes | None:
    """The receipt in the refusal of a duplicate."""
    if isinstance(result, Rejected) and result.failure in _IN_THE_LOG:
        return result.receipt
    return None


def is_lasting(error: Rejected | HubRefused) -> bool:
    """Whether a retry of the same bytes would be refused again."""
    return code_of(error) not in _TRANSIENT


def code_of(error: Rejected | HubRefused) -> str:
    return error.failure.code.value if isinstance(error, Rejected) else error.code


class FailureHandler:
    """Decides how to continue after a failed submit."""

    def __init__(self, session: Session, outbox: Outbox, sealer: MessageSealer) -> None:
        self._session = session
        self._outbox = outbox
        self._sealer = sealer

    def handle(
        self,
        queue: StreamQueue,
        slots: list[InFlight],
        failure: SubmitFailure,
        tries: int,
        *,
        patient: bool,
    ) -> list[InFlight] | None:
        """The slots to continue with; None if the first was released from its position."""
        if isinstance(failure, ForeignMessage):
            return self._handle_foreign(queue, slots, failure, tries)
        if isinstance(failure, SubmitRefusal):
            return self._handle_refusal(queue, slots, failure.error, tries, patient)
        self._wait(tries, None, failure.error)
        return slots

    def _handle_refusal(
        self,
        queue: StreamQueue,
        slots: list[InFlight],
        error: Rejected | HubRefused,
        tries: int,
        patient: bool,
    ) -> list[InFlight] | None:
        failure = error.failure if isinstance(error, Rejected) else None
        if failure is Failure.EPOCH and self._is_over(queue, slots[0]):
            self._outbox.release_queue(queue.key)
            self._sealer.discard(slot.current for slot in slots)
            return None
        if failure in _CAPABILITY_FAILURES and self._has_another_capability(slots[0]):
            return self._sealed_again(queue, slots)
        if is_lasting(error) and not patient:
            raise error
        self._wait(tries, error.retry_after, error)
        return slots

    def _handle_foreign(
        self, queue: StreamQueue, slots: list[InFlight], failure: ForeignMessage, tries: int
    ) -> list[InFlight] | None:
        """Release a position that is proved, by a message we signed, to be taken."""
        slot = slots[0]
        lost = StateLost(
            f"{queue.name}: client_seq {slot.current.client_seq} is in the log with a message that "
            "this directory does not know: it is a copy, or older than the log; run veen resync"
        )
        if not self._is_taken(slot, failure.receipt):
            self._wait(tries, None, lost)
            return slots
        view = self._session.view(slot.current.label, queue.name, slot.current.epoch)
        if view.cursor(slot.current.client_id).client_seq < slot.current.client_seq:
            raise lost
        self._outbox.release(slot.current.event_id)
        self._sealer.discard([slot.current])
        return None

    def _wait(self, tries: int, retry_after: int | None, error: VeenError) -> None:
        transport = self._session.api.transport
        if tries + 1 >= transport.retry_policy.attempts:
            raise error
        transport.pause(tries, min(retry_after or 0, MAX_WAIT_SEC))

    def _is_over(self, queue: StreamQueue, slot: InFlight) -> bool:
        """Whether the epoch of a label is over, so that it accepts no more messages."""
        if not queue.labels.profile.epoch_sec:
            return False
        self._session.ask_time()
        skew = self._session.limits.max_epoch_skew_sec
        open_epochs = queue.labels.profile.epochs(self._session.hub_now(), skew)
        return slot.current.epoch < open_epochs.start

    def _has_another_capability(self, slot: InFlight) -> bool:
        if slot.current.client_id != self._session.client_id:
            return False
        expected = self._sealer.auth_ref(self._outbox.message(slot.current.event_id))
        return expected != slot.current.auth_ref

    def _sealed_again(self, queue: StreamQueue, slots: Sequence[InFlight]) -> list[InFlight]:
        """New attempts at the same positions; later ones too, as prev_ack must not go back."""
        attempts = []
        for slot in slots:
            current = slot.current
            view = self._session.view(current.label, queue.name, current.epoch)
            position = SequencePosition(
                current.label, current.epoch, current.client_seq, max(current.prev_ack, view.seen)
            )
            events = [(slot.current.event_id, self._outbox.message(slot.current.event_id))]
            attempts += self._sealer.store(self._sealer.seal(position, events))
        self._outbox.journal(attempts)
        return [slot.again(attempt) for slot, attempt in zip(slots, attempts, strict=True)]

    def _is_taken(self, slot: InFlight, receipt: Receipt) -> bool:
        request = StreamRequest(
            label=slot.current.label, from_seq=receipt.stream_seq, max_items=1, with_receipts=True
        )
        try:
            (item,) = self._session.api.stream(request).items
            msg = Msg.decode(item.msg)
        except (HubRefused, Rejected, ValueError):
            return False
        place = slot.current.label, slot.current.client_id, slot.current.client_seq
        return (
            (msg.label, msg.client_id, msg.client_seq) == place
            and msg.ct_hash_matches()
            and msg.signature_is_valid()
            and msg.leaf_hash() == receipt.leaf_hash
        )
