"""The numbers of each client in a chunk: every one follows the last of the same client (I6-I9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from veen.audit.findings import Jump, Loss
from veen.audit.report import Fault
from veen.invariants import ClientCursor
from veen.msg import Msg


class Clients:
    """A client's first entry is taken to follow what came before, unless a cursor was given."""

    def __init__(self, given: Iterable[tuple[bytes, ClientCursor]]) -> None:
        self._given = dict(given)
        self._losses = 0
        self._lost_upto = 0
        self._seen: Callable[[], int] = lambda: 0
        self.lasts: dict[bytes, ClientCursor] = dict(self._given)
        self.firsts: dict[bytes, ClientCursor] = {}
        self.gaps: list[Jump | Loss] = []
        self.after: dict[bytes, int] = {}

    def place_by(self, seen: Callable[[], int]) -> None:
        """Whoever walks tells how far it has come: what is lost comes next."""
        self._seen = seen

    def check(self, msg: Msg, file: str, at: int, seq: int) -> Fault | None:
        """What is wrong with the next message of a client; a gap is kept for later."""
        last = self.lasts.get(msg.client_id)
        if last is None:
            self.firsts[msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
            last = ClientCursor(msg.client_seq - 1, msg.prev_ack)
        if msg.client_seq > last.client_seq:
            self.lasts[msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
        if msg.prev_ack >= seq:
            what = f"prev_ack {msg.prev_ack} was not there to be seen"
            found: Fault | None = Fault(file, at, seq, what, "I6")
        elif msg.client_seq == 0:
            found = Fault(file, at, seq, "client_seq starts at 1", "I9")
        else:
            found = self._follows(msg, last, file, at, seq)
        if self._losses and msg.client_seq > last.client_seq:
            self.after[msg.client_id] = self._losses
        return found

    def salvage(self, msg: Msg) -> None:
        """A message whose frame is broken, but which its receipt names: nothing else is sure."""
        self.lasts[msg.client_id] = ClientCursor(msg.client_seq, 0)
        if self._losses:
            self.after[msg.client_id] = self._losses

    def lose(self, count: int) -> None:
        """So many entries are lost; of two losses at one place the second comes behind."""
        first = max(self._seen(), self._lost_upto) + 1
        self.gaps.append(Loss(first, count))
        self._lost_upto = first + count - 1
        self._losses += 1

    def _follows(
        self, msg: Msg, last: ClientCursor, file: str, at: int, seq: int
    ) -> Fault | None:  # fmt: skip
        if msg.client_seq <= last.client_seq:
            return Fault(file, at, seq, f"client_seq {msg.client_seq} is there already", "I8")
        gap = msg.client_seq - last.client_seq - 1
        if gap:
            what = f"client_seq {msg.client_seq} follows {last.client_seq}"
            is_given = self._given.get(msg.client_id) is last
            since = None if is_given else self.after.get(msg.client_id, 0)
            fault = Fault(file, at, seq, what, "I9")
            self.gaps.append(Jump(msg.client_id, last.client_seq + 1, gap, since, fault))
            return None
        if msg.prev_ack < last.prev_ack:
            what = f"prev_ack went back from {last.prev_ack} to {msg.prev_ack}"
            return Fault(file, at, seq, what, "I6")
        return None
