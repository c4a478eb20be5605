"""The entries of one chunk, walked from the first to the last; a fault is told and walked past."""

from __future__ import annotations

from collections.abc import Callable

from veen.audit.artefacts import Artefacts
from veen.audit.clients import Clients
from veen.audit.climb import Climb
from veen.audit.context import Context, Told
from veen.audit.findings import ANY, Start, Task
from veen.audit.frames import Bad, Good
from veen.audit.pair import TOGETHER, PairCheck
from veen.audit.report import Fault
from veen.control import ControlRecord, control_label
from veen.entry import FramedEntry
from veen.errors import Malformed, Untrusted
from veen.receipt import Receipt

See = Callable[[FramedEntry, int], None]
"""Is shown every sound entry that stands in its place, with its offset."""


def nobody(_framed: FramedEntry, _at: int) -> None:
    pass


class EntryWalk:
    def __init__(
        self,
        task: Task,
        start: Start,
        context: Context,
        climb: Climb,
        artefacts: Artefacts,
        see: See,
    ) -> None:
        self._task = task
        self._file = task.file
        self._context = context
        self._climb = climb
        self._artefacts = artefacts
        self._see = see
        self._is_control = task.label == control_label(context.hub.hub_id)
        self._pairs = PairCheck(context, task.label, start.origin)
        self._begin = start.seen + 1
        self._stops = task.due | task.snapshots
        self._rated = context.rated
        self.clients = Clients(start.cursors)
        self.faults: list[Fault] = []
        self.hashes: list[bytes] = []
        self.size = 0
        self.uses: dict[tuple[bytes, int], int] = {}
        self.told: list[Told] = []
        self.seen = start.seen
        self.excused = 0
        self.last_ts = start.last_ts
        self.first: Receipt | None = None
        self.first_ts: int | None = None
        self.is_confirmed = False

    def take(self, frame: Good | Bad) -> None:
        if isinstance(frame, Good):
            self._good(frame)
        else:
            self._bad(frame)

    def _good(self, frame: Good) -> None:
        at, framed = frame
        header, msg, receipt = framed.header, framed.msg, framed.receipt
        seq, hub_ts = receipt.stream_seq, receipt.hub_ts
        if seq != self.seen + 1 or self.first is None or self.excused:
            if seq <= self.seen:
                self._fault(at, seq, f"stream_seq {seq} comes after {self.seen}", "ORDER")
                return
            self._place(at, receipt)
        if hub_ts != self.last_ts or self.first_ts is None:
            self._tick(at, receipt)
        leaf = msg.leaf_hash()
        for code, what in self._pairs.broken(msg, receipt, leaf, at):
            self._fault(at, seq, what, code)
        is_right = self._climb.step(receipt, leaf, at)
        if self.first is receipt:
            self.is_confirmed = is_right
        wrong = self.clients.check(msg, self._file, at, seq)
        if wrong is not None:
            self.faults.append(wrong)
        self.hashes.append(header.entry_hash)
        self.size += header.whole_size
        if self._is_control or msg.auth_ref in self._rated:
            self._learn(frame)
        self.seen = seq
        if seq in self._stops:
            self._stop(seq)
        self._see(framed, at)
        if len(self._pairs.signed) >= TOGETHER:
            self._check_signatures()

    def _tick(self, at: int, receipt: Receipt) -> None:
        """Hub time never goes back."""
        hub_ts = receipt.hub_ts
        if self.first_ts is None:
            self.first_ts = hub_ts
        if hub_ts < self.last_ts:
            what = f"hub_ts goes back from {self.last_ts} to {hub_ts}"
            self._fault(at, receipt.stream_seq, what, "TIME")
        else:
            self.last_ts = hub_ts

    def _bad(self, frame: Bad) -> None:
        receipt = frame.receipt
        is_own = receipt is not None and self._is_own(receipt)
        seq = receipt.stream_seq if receipt is not None and is_own else None
        self._fault(frame.at, seq or self.seen + 1, frame.why, "FRAME")
        leaf = frame.msg.leaf_hash() if frame.msg is not None else None
        if receipt is not None and seq is not None:
            if seq > self.seen:
                self._salvage(frame, receipt, leaf)
        elif frame.claimed_seq == self.seen + 1:
            self.clients.lose(1)
            self._climb.lose(leaf)
            self._arrive(frame.claimed_seq)
        else:
            self._climb.lose(leaf)
            self.excused = ANY

    def _salvage(self, frame: Bad, receipt: Receipt, leaf: bytes | None) -> None:
        """Go on after a frame of which the receipt, at least, is sound."""
        self._place(frame.at, receipt)
        is_right = self._climb.step(receipt, leaf, frame.at)
        self.is_confirmed = self.is_confirmed or (self.first is receipt and is_right)
        if frame.msg is not None and leaf == receipt.leaf_hash:
            self.clients.salvage(frame.msg)
        else:
            self.clients.lose(1)
        self._arrive(receipt.stream_seq)

    def _place(self, at: int, receipt: Receipt) -> None:
        """Say what is missing before an entry."""
        if self.first is None:
            self.first = receipt
        seq = receipt.stream_seq
        missing = seq - self.seen - 1
        if missing:
            if not self.excused:
                what = f"entries {self.seen + 1} to {seq - 1} are missing before this one"
                self._fault(at, seq, what, "MISSING")
            self._climb.miss()
            self.clients.lose(missing)
        self.excused = 0

    def _arrive(self, seq: int) -> None:
        self.seen = seq
        if seq in self._stops:
            self._stop(seq)

    def _stop(self, seq: int) -> None:
        """Look at what stands beside the chunk at this size."""
        self._climb.settle(seq)
        if self._climb.peaks is not None:
            self._artefacts.at(seq, self._begin, self._climb.peaks, self.last_ts)

    def _is_own(self, receipt: Receipt) -> bool:
        """Whether the hub gave this receipt, for this label."""
        try:
            self._context.hub.verify_receipt(receipt)
        except Untrusted:
            return False
        return receipt.label == self._task.label

    def _learn(self, frame: Good) -> None:
        """What others need of an entry: a use of a rate, or a control record."""
        msg = frame.framed.msg
        if msg.auth_ref is not None and msg.auth_ref in self._rated:
            use = (msg.auth_ref, frame.framed.receipt.hub_ts)
            self.uses[use] = self.uses.get(use, 0) + 1
        if self._is_control:
            self._control(frame)

    def _control(self, frame: Good) -> None:
        """A control record is the hub's own, and a capability in it is its issuer's."""
        msg, receipt = frame.framed.msg, frame.framed.receipt
        try:
            record = ControlRecord.of(msg)
        except Malformed as error:
            self._fault(frame.at, receipt.stream_seq, str(error), "CONTROL")
            return
        hub_ts, keys = receipt.hub_ts, self._context.hub.hub_keys
        if msg.client_id not in [key.hub_pk for key in keys if key.overlaps(hub_ts, hub_ts)]:
            what = "a control record that is not the hub's"
            self._fault(frame.at, receipt.stream_seq, what, "CONTROL")
        token = record.token()
        try:
            if token is not None:
                token.verify_chain()
        except Untrusted as error:
            self._fault(frame.at, receipt.stream_seq, str(error), "I7")
        self.told.append(Told(record, receipt.stream_seq, receipt.hub_ts))

    def finish(self) -> None:
        """Tell of what shows only later: signatures that waited, and some wrong roots."""
        self._check_signatures()
        for seq, at in self._climb.wrong:
            self._fault(at, seq, "mmr_root is not the root after appending leaf_hash", "I3")

    def _check_signatures(self) -> None:
        for at, seq, (code, what) in self._pairs.unsigned():
            self._fault(at, seq, what, code)

    def _fault(self, at: int, seq: int, what: str, code: str) -> None:
        self.faults.append(Fault(self._file, at, seq, what, code))
