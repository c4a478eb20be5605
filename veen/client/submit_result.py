"""What an answer to a submitted message is worth: a receipt to believe, or a reason not to.

What to do when a message did not land: wait, seal it again, let it go elsewhere, or give up.

A refusal is not signed. It may cost an event its turn, but never lets it stand in two places.
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
_UNBELIEVABLE = (Untrusted, Malformed, Rejected, HubRefused, Unreachable)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A slot that is filled, by which attempt, and where."""

    slot: InFlight
    attempt: SubmitAttempt
    receipt: Receipt
    size: int

    @property
    def is_late(self) -> bool:
        return self.attempt.event_id != self.slot.event_id


@dataclass(frozen=True, slots=True)
class SubmitRefusal:
    """The hub, or someone in its name, says no; nothing proves it."""

    error: Rejected | HubRefused


@dataclass(frozen=True, slots=True)
class Doubt:
    """An answer that proves nothing: it was cut, altered, or is of something else."""

    error: VeenError


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """A place that the hub says is taken, with a good receipt of something we did not send."""

    receipt: Receipt


SubmitFailure = SubmitRefusal | Doubt | ForeignMessage


class ReceiptVerifier:
    """Moves the view of one label over the answers to one request, in their order."""

    def __init__(self, session: Session, view: LabelView) -> None:
        self._session = session
        self._may_read = True
        self._last: SubmitAttempt | None = None
        self.view = view

    def verdict(self, slot: InFlight, result: Result) -> Acknowledged | SubmitFailure:
        try:
            receipt = _receipt(result)
            if receipt is None:
                return SubmitRefusal(result)  # type: ignore[arg-type]
            return self._of_receipt(slot, receipt, is_new=isinstance(result, bytes))
        except _Doubtful as doubt:
            return Doubt(doubt.error)

    def _of_receipt(
        self, slot: InFlight, receipt: Receipt, *, is_new: bool
    ) -> Acknowledged | SubmitFailure:
        attempt = slot.attempt(receipt.leaf_hash)
        if receipt.label != slot.label or (attempt is None and is_new):
            return Doubt(Untrusted(f"receipt {receipt.stream_seq} is of another message"))
        self._verify_signature(receipt)
        if attempt is None:
            return ForeignMessage(receipt)
        self._refuse_fork(receipt)
        if receipt.stream_seq <= attempt.prev_ack:
            raise Untrusted(
                f"the hub signed stream_seq {receipt.stream_seq} for a message "
                f"that was sent after {attempt.prev_ack} had been seen"
            )
        self.view = self._moved(receipt)
        self._last = attempt
        return Acknowledged(slot, attempt, receipt, self.view.peaks.size)

    def _verify_signature(self, receipt: Receipt) -> None:
        try:
            self._session.verify_receipt(receipt)
        except _UNBELIEVABLE as error:
            raise _Doubtful(error) from error

    def _refuse_fork(self, receipt: Receipt) -> None:
        for known in (self.view.head, self.view.unlinked):
            if known is not None and known.contradicts(receipt):
                raise store_evidence(self._session, known, receipt)

    def _moved(self, receipt: Receipt) -> LabelView:
        """I3 where our history is complete; else the hub proves that ours is its beginning."""
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
            except _UNBELIEVABLE as error:
                raise _Doubtful(error) from error
        return view if seq <= view.seen else view.noted(receipt)

    def _linked(self, receipt: Receipt) -> LabelView:
        """What was noted without proof is proved first: it must be of the same history."""
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
        """The view after all that landed, with the place of its client."""
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


def _receipt(result: Result) -> Receipt | None:
    """The receipt in an answer, also in one that says the message is in the log already."""
    raw = result if isinstance(result, bytes) else _recalled(result)
    if raw is None:
        return None
    try:
        return Receipt.decode(raw)
    except Malformed as error:
        raise _Doubtful(error) from error


def _recalled(result: Rejected | HubRefused) -> bytes | None:
    if isinstance(result, Rejected) and result.failure in _IN_THE_LOG:
        return result.receipt
    return None


_PASSING: Final = {Code.RATE.value, Code.UNAVAILABLE.value, Code.SIG.value, Code.CONFLICT.value}
_OF_CAPABILITY: Final = {
    Failure.CAP_MISSING, Failure.CAP_INVALID, Failure.CAP_TTL, Failure.AUTH_REF,
}  # fmt: skip


def is_lasting(error: Rejected | HubRefused) -> bool:
    """Whether the same bytes would be refused again however long one waits."""
    return code_of(error) not in _PASSING


def code_of(error: Rejected | HubRefused) -> str:
    return error.failure.code.value if isinstance(error, Rejected) else error.code


class Remedy:
    def __init__(self, session: Session, outbox: Outbox, sealer: MessageSealer) -> None:
        self._session = session
        self._outbox = outbox
        self._sealer = sealer

    def cure(
        self,
        queue: StreamQueue,
        slots: list[InFlight],
        trouble: SubmitFailure,
        tries: int,
        *,
        patient: bool,
    ) -> list[InFlight] | None:
        """The slots to go on with; None where the first of them was let go from its place."""
        if isinstance(trouble, ForeignMessage):
            return self._of_stranger(queue, slots, trouble, tries)
        if isinstance(trouble, SubmitRefusal):
            return self._of_refusal(queue, slots, trouble.error, tries, patient)
        self._wait(tries, None, trouble.error)
        return slots

    def _of_refusal(
        self,
        queue: StreamQueue,
        slots: list[InFlight],
        error: Rejected | HubRefused,
        tries: int,
        patient: bool,
    ) -> list[InFlight] | None:
        failure = error.failure if isinstance(error, Rejected) else None
        if failure is Failure.EPOCH and self._is_over(queue, slots[0]):
            self._outbox.ground_lane(queue.key)
            self._sealer.discard(slot.current for slot in slots)
            return None
        if failure in _OF_CAPABILITY and self._has_another_capability(slots[0]):
            return self._sealed_again(queue, slots)
        if is_lasting(error) and not patient:
            raise error
        self._wait(tries, error.retry_after, error)
        return slots

    def _of_stranger(
        self, queue: StreamQueue, slots: list[InFlight], trouble: ForeignMessage, tries: int
    ) -> list[InFlight] | None:
        """Only a message that we signed ourselves proves that the place is taken."""
        slot = slots[0]
        lost = StateLost(
            f"{queue.name}: client_seq {slot.client_seq} is in the log with a message that this "
            "directory does not know: it is a copy, or older than the log; run veen resync"
        )
        if not self._is_taken(slot, trouble.receipt):
            self._wait(tries, None, lost)
            return slots
        view = self._session.view(slot.label, queue.name, slot.current.epoch)
        if view.cursor(slot.client_id).client_seq < slot.client_seq:
            raise lost
        self._outbox.ground(slot.event_id)
        self._sealer.discard([slot.current])
        return None

    def _wait(self, tries: int, retry_after: int | None, error: VeenError) -> None:
        transport = self._session.api.transport
        if tries + 1 >= transport.retry_policy.attempts:
            raise error
        transport.pause(tries, min(retry_after or 0, MAX_WAIT_SEC))

    def _is_over(self, queue: StreamQueue, slot: InFlight) -> bool:
        """Whether a label's time has passed: what it has not taken it will not take any more."""
        if not queue.labels.profile.epoch_sec:
            return False
        self._session.ask_time()
        skew = self._session.limits.max_epoch_skew_sec
        open_epochs = queue.labels.profile.epochs(self._session.hub_now(), skew)
        return slot.current.epoch < open_epochs.start

    def _has_another_capability(self, slot: InFlight) -> bool:
        if slot.client_id != self._session.identity.client_id:
            return False
        expected = self._sealer.auth_ref(self._outbox.draft(slot.event_id))
        return expected != slot.current.auth_ref

    def _sealed_again(self, queue: StreamQueue, slots: Sequence[InFlight]) -> list[InFlight]:
        """New attempts at the same places, also at the later ones: prev_ack must not go back."""
        again = []
        for slot in slots:
            now = slot.current
            view = self._session.view(now.label, queue.name, now.epoch)
            position = SequencePosition(
                now.label, now.epoch, now.client_seq, max(now.prev_ack, view.seen)
            )
            events = [(slot.event_id, self._outbox.draft(slot.event_id))]
            again += self._sealer.store(self._sealer.seal(position, events))
        self._outbox.journal(again)
        return [slot.again(attempt) for slot, attempt in zip(slots, again, strict=True)]

    def _is_taken(self, slot: InFlight, receipt: Receipt) -> bool:
        request = StreamRequest(
            label=slot.label, from_seq=receipt.stream_seq, max_items=1, with_receipts=True
        )
        try:
            (item,) = self._session.api.stream(request).items
            msg = Msg.decode(item.msg)
        except (HubRefused, Rejected, ValueError):
            return False
        place = slot.label, slot.client_id, slot.client_seq
        return (
            (msg.label, msg.client_id, msg.client_seq) == place
            and msg.ct_hash_matches()
            and msg.signature_is_valid()
            and msg.leaf_hash() == receipt.leaf_hash
        )
