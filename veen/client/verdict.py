"""What an answer to a submitted message is worth: a receipt to believe, or a reason not to."""

from __future__ import annotations

from dataclasses import dataclass

from veen.client import evidence
from veen.client.errors import HubRefused, Unreachable
from veen.client.flight import Flight, Slot
from veen.client.hub_api import Result
from veen.client.session import Session
from veen.client.view import LabelView
from veen.errors import Failure, Malformed, Rejected, Untrusted, VeenError
from veen.invariants import ClientCursor
from veen.receipt import Receipt

_IN_THE_LOG = (Failure.DUPLICATE, Failure.PREV_ACK)
_UNBELIEVABLE = (Untrusted, Malformed, Rejected, HubRefused, Unreachable)


@dataclass(frozen=True, slots=True)
class Landed:
    """A slot that is filled, by which attempt, and where."""

    slot: Slot
    attempt: Flight
    receipt: Receipt
    size: int

    @property
    def is_late(self) -> bool:
        return self.attempt.event_id != self.slot.event_id


@dataclass(frozen=True, slots=True)
class Refusal:
    """The hub, or someone in its name, says no; nothing proves it."""

    error: Rejected | HubRefused


@dataclass(frozen=True, slots=True)
class Doubt:
    """An answer that proves nothing: it was cut, altered, or is of something else."""

    error: VeenError


@dataclass(frozen=True, slots=True)
class Stranger:
    """A place that the hub says is taken, with a good receipt of something we did not send."""

    receipt: Receipt


Trouble = Refusal | Doubt | Stranger


class Judge:
    """Moves the view of one label over the answers to one request, in their order."""

    def __init__(self, session: Session, view: LabelView) -> None:
        self._session = session
        self._may_read = True
        self._last: Flight | None = None
        self.view = view

    def verdict(self, slot: Slot, result: Result) -> Landed | Trouble:
        try:
            found = _receipt(result)
            if found is None:
                return Refusal(result)  # type: ignore[arg-type]
            return self._of_receipt(slot, found, is_new=isinstance(result, bytes))
        except _Doubtful as doubt:
            return Doubt(doubt.error)

    def _of_receipt(self, slot: Slot, receipt: Receipt, *, is_new: bool) -> Landed | Trouble:
        attempt = slot.attempt(receipt.leaf_hash)
        if receipt.label != slot.label or (attempt is None and is_new):
            return Doubt(Untrusted(f"receipt {receipt.stream_seq} is of another message"))
        self._verify_signature(receipt)
        if attempt is None:
            return Stranger(receipt)
        self._refuse_fork(receipt)
        if receipt.stream_seq <= attempt.prev_ack:
            raise Untrusted(
                f"the hub signed stream_seq {receipt.stream_seq} for a message "
                f"that was sent after {attempt.prev_ack} had been seen"
            )
        self.view = self._moved(receipt)
        self._last = attempt
        return Landed(slot, attempt, receipt, self.view.peaks.size)

    def _verify_signature(self, receipt: Receipt) -> None:
        try:
            self._session.verify_receipt(receipt)
        except _UNBELIEVABLE as error:
            raise _Doubtful(error) from error

    def _refuse_fork(self, receipt: Receipt) -> None:
        for known in (self.view.head, self.view.unlinked):
            if known is not None and known.contradicts(receipt):
                raise evidence.keep(self._session, known, receipt)

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
