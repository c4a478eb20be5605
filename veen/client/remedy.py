"""What to do when a message did not land: wait, seal it again, let it go elsewhere, or give up.

A refusal is not signed. It may cost an event its turn, but never lets it stand in two places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veen.client.errors import HubRefused, StateLost
from veen.client.flight import Slot
from veen.client.outbox import Outbox
from veen.client.sealer import Berth, Lane, Sealer
from veen.client.session import Session
from veen.client.transport import MAX_WAIT_SEC
from veen.client.verdict import Refusal, Stranger, Trouble
from veen.envelope import StreamRequest
from veen.errors import Code, Failure, Rejected, VeenError
from veen.msg import Msg
from veen.receipt import Receipt

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
    def __init__(self, session: Session, outbox: Outbox, sealer: Sealer) -> None:
        self._session = session
        self._outbox = outbox
        self._sealer = sealer

    def cure(
        self, lane: Lane, slots: list[Slot], trouble: Trouble, tries: int, *, patient: bool
    ) -> list[Slot] | None:
        """The slots to go on with; None where the first of them was let go from its place."""
        if isinstance(trouble, Stranger):
            return self._of_stranger(lane, slots, trouble, tries)
        if isinstance(trouble, Refusal):
            return self._of_refusal(lane, slots, trouble.error, tries, patient)
        self._wait(tries, None, trouble.error)
        return slots

    def _of_refusal(
        self,
        lane: Lane,
        slots: list[Slot],
        error: Rejected | HubRefused,
        tries: int,
        patient: bool,
    ) -> list[Slot] | None:
        failure = error.failure if isinstance(error, Rejected) else None
        if failure is Failure.EPOCH and self._is_over(lane, slots[0]):
            self._outbox.ground_lane(lane.key)
            self._sealer.discard(one.current for one in slots)
            return None
        if failure in _OF_CAPABILITY and self._has_another_capability(slots[0]):
            return self._sealed_again(lane, slots)
        if is_lasting(error) and not patient:
            raise error
        self._wait(tries, error.retry_after, error)
        return slots

    def _of_stranger(
        self, lane: Lane, slots: list[Slot], trouble: Stranger, tries: int
    ) -> list[Slot] | None:
        """Only a message that we signed ourselves proves that the place is taken."""
        slot = slots[0]
        lost = StateLost(
            f"{lane.name}: client_seq {slot.client_seq} is in the log with a message that this "
            "directory does not know: it is a copy, or older than the log; run veen resync"
        )
        if not self._is_taken(slot, trouble.receipt):
            self._wait(tries, None, lost)
            return slots
        view = self._session.view(slot.label, lane.name, slot.current.epoch)
        if view.cursor(slot.client_id).client_seq < slot.client_seq:
            raise lost
        self._outbox.ground(slot.event_id)
        self._sealer.discard([slot.current])
        return None

    def _wait(self, tries: int, retry_after: int | None, error: VeenError) -> None:
        transport = self._session.api.transport
        if tries + 1 >= transport.patience.attempts:
            raise error
        transport.pause(tries, min(retry_after or 0, MAX_WAIT_SEC))

    def _is_over(self, lane: Lane, slot: Slot) -> bool:
        """Whether a label's time has passed: what it has not taken it will not take any more."""
        if not lane.labels.profile.epoch_sec:
            return False
        self._session.ask_time()
        skew = self._session.limits.max_epoch_skew_sec
        open_epochs = lane.labels.profile.epochs(self._session.hub_now(), skew)
        return slot.current.epoch < open_epochs.start

    def _has_another_capability(self, slot: Slot) -> bool:
        if slot.client_id != self._session.identity.client_id:
            return False
        wanted = self._sealer.auth_ref(self._outbox.draft(slot.event_id))
        return wanted != slot.current.auth_ref

    def _sealed_again(self, lane: Lane, slots: Sequence[Slot]) -> list[Slot]:
        """New attempts at the same places, also at the later ones: prev_ack must not go back."""
        again = []
        for slot in slots:
            now = slot.current
            view = self._session.view(now.label, lane.name, now.epoch)
            berth = Berth(now.label, now.epoch, now.client_seq, max(now.prev_ack, view.seen))
            events = [(slot.event_id, self._outbox.draft(slot.event_id))]
            again += self._sealer.store(self._sealer.seal(berth, events))
        self._outbox.journal(again)
        return [slot.again(flight) for slot, flight in zip(slots, again, strict=True)]

    def _is_taken(self, slot: Slot, receipt: Receipt) -> bool:
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
