"""Entries of a chunk that stand out of their place: whose they are, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from veen.audit.context import Context
from veen.audit.findings import Start, Stray, Task
from veen.audit.pair import PairCheck
from veen.audit.report import Fault
from veen.entry import FramedEntry, open_entry, read_entry
from veen.errors import Untrusted

ORDER = "ORDER"
"""The code of the fault that an entry is told by which comes after a later one."""


@dataclass(frozen=True, slots=True)
class StrayCheck:
    """The walk passes over them; all that a pair shows by itself is told here."""

    task: Task
    start: Start
    context: Context
    found: list[Stray] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def look(self, raw: bytes, faults: Iterable[Fault]) -> None:
        pairs = PairCheck(self.context, self.task.label, self.start.origin)
        for at in [one.offset for one in faults if one.code == ORDER]:
            framed = open_entry(*read_entry(raw, at, self.context.limits))
            msg, receipt, leaf = framed.msg, framed.receipt, framed.msg.leaf_hash()
            for code, what in pairs.broken(msg, receipt, leaf, at):
                self._tell(at, receipt.stream_seq, what, code)
            if leaf == receipt.leaf_hash and self._is_own(framed):
                self.found.append(Stray(receipt.stream_seq, msg.client_id, msg.client_seq))
        for at, seq, (code, what) in pairs.unsigned():
            self._tell(at, seq, what, code)

    def _is_own(self, framed: FramedEntry) -> bool:
        """Whether the hub gave this receipt, for this label."""
        try:
            self.context.hub.verify_receipt(framed.receipt)
        except Untrusted:
            return False
        return framed.receipt.label == self.task.label

    def _tell(self, at: int, seq: int, what: str, code: str) -> None:
        self.faults.append(Fault(self.task.file, at, seq, what, code))
