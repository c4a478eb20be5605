"""The numbers of each client in a chunk: every one follows the last of the same client (I6-I9)."""

from __future__ import annotations

from collections.abc import Iterable

from veen.audit.findings import Jump, Loss
from veen.audit.report import Fault
from veen.invariants import ClientCursor
from veen.msg import Msg


class Clients:
    """A client's first entry is taken to follow what came before, unless a cursor was given."""

    def __init__(self, given: Iterable[tuple[bytes, ClientCursor]]) -> None:
        self.lasts: dict[bytes, ClientCursor] = dict(given)
        self.firsts: dict[bytes, ClientCursor] = {}
        self.gaps: list[Jump | Loss] = []

    def check(self, msg: Msg, file: str, at: int, seq: int) -> Fault | None:
        """What is wrong with the next message of a client; a gap is kept for later."""
        last = self.lasts.get(msg.client_id)
        if last is None:
            self.firsts[msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
            last = ClientCursor(msg.client_seq - 1, msg.prev_ack)
        if msg.client_seq > last.client_seq:
            self.lasts[msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
        if msg.prev_ack >= seq:
            return Fault(file, at, seq, f"prev_ack {msg.prev_ack} was not there to be seen", "I6")
        if msg.client_seq == 0:
            return Fault(file, at, seq, "client_seq starts at 1", "I9")
        return self._follows(msg, last, file, at, seq)

    def salvage(self, msg: Msg) -> None:
        """A message whose frame is broken, but which its receipt names: nothing else is sure."""
        self.lasts[msg.client_id] = ClientCursor(msg.client_seq, 0)

    def lose(self, count: int) -> None:
        self.gaps.append(Loss(count))

    def _follows(
        self, msg: Msg, last: ClientCursor, file: str, at: int, seq: int
    ) -> Fault | None:  # fmt: skip
        if msg.client_seq <= last.client_seq:
            return Fault(file, at, seq, f"client_seq {msg.client_seq} is there already", "I8")
        gap = msg.client_seq - last.client_seq - 1
        if gap:
            what = f"client_seq {msg.client_seq} follows {last.client_seq}"
            self.gaps.append(Jump(gap, Fault(file, at, seq, what, "I9")))
            return None
        if msg.prev_ack < last.prev_ack:
            what = f"prev_ack went back from {last.prev_ack} to {msg.prev_ack}"
            return Fault(file, at, seq, what, "I6")
        return None
