"""The audit of a chunk from its own bytes and the peaks at its start.

``EntryWalk`` goes through all entries; a fault is recorded and the walk continues. The start is
taken from the name and the snapshot of the chunk. ``veen.audit.continuity`` decides whether it is
right, and has the chunk audited again from the right start if it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from veen import mmr
from veen.audit.artefacts import Artefacts
from veen.audit.context import (
    ANY,
    ChunkFindings,
    Context,
    FindingKind,
    LoggedControl,
    RateUse,
    Read,
    Start,
    Task,
)
from veen.audit.entries import (
    ORDER,
    TOGETHER,
    Clients,
    DamagedFrame,
    Hint,
    MisplacedCheck,
    MmrTracker,
    PairCheck,
    SoundFrame,
    no_hint,
    read_snapshot,
    split,
)
from veen.audit.report import AuditFault
from veen.errors import Malformed, Untrusted
from veen.log.chunk import ChunkTally
from veen.log.entry import ControlRecord, FramedEntry, control_label
from veen.log.layout import ChunkName
from veen.mmr import Peaks
from veen.receipt import Receipt

See = Callable[[FramedEntry, int], None]
"""Receives every valid entry in its place, with its offset."""


def no_observer(_framed: FramedEntry, _at: int) -> None:
    """A ``See`` that does nothing."""


class EntryWalk:
    """Checks the entries of a chunk from the first to the last."""

    def __init__(
        self,
        task: Task,
        start: Start,
        context: Context,
        track: MmrTracker,
        artefacts: Artefacts,
        see: See,
    ) -> None:
        self._task = task
        self._file = task.file
        self._context = context
        self._tracker = track
        self._artefacts = artefacts
        self._see = see
        self._is_control = task.label == control_label(context.hub.hub_id)
        self._pairs = PairCheck(context, task.label, start.origin)
        self._begin = start.seen + 1
        self._stops = task.due | task.snapshots
        self._rated = context.rated
        self.clients = Clients(start.cursors)
        self.faults: list[AuditFault] = []
        self.hashes: list[bytes] = []
        self.size = 0
        self.uses: dict[tuple[bytes, int], int] = {}
        self.control_records: list[LoggedControl] = []
        self.seen = start.seen
        self.excused = 0
        self.last_ts = start.last_ts
        self.first: Receipt | None = None
        self.first_ts: int | None = None
        self.is_confirmed = False

    def take(self, frame: SoundFrame | DamagedFrame) -> None:
        if isinstance(frame, SoundFrame):
            self._take_sound(frame)
        else:
            self._take_damaged(frame)

    def _take_sound(self, frame: SoundFrame) -> None:
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
        is_right = self._tracker.step(receipt, leaf, at)
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

    def _take_damaged(self, frame: DamagedFrame) -> None:
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
            self._tracker.lose(leaf)
            self._arrive(frame.claimed_seq)
        else:
            self._tracker.lose(leaf)
            self.excused = ANY

    def _salvage(self, frame: DamagedFrame, receipt: Receipt, leaf: bytes | None) -> None:
        """Continue after a damaged frame whose receipt is valid."""
        self._place(frame.at, receipt)
        is_right = self._tracker.step(receipt, leaf, frame.at)
        self.is_confirmed = self.is_confirmed or (self.first is receipt and is_right)
        if frame.msg is not None and leaf == receipt.leaf_hash:
            self.clients.salvage(frame.msg)
        else:
            self.clients.lose(1)
        self._arrive(receipt.stream_seq)

    def _place(self, at: int, receipt: Receipt) -> None:
        """Record what is missing before an entry."""
        if self.first is None:
            self.first = receipt
        seq = receipt.stream_seq
        missing = seq - self.seen - 1
        if missing:
            if not self.excused:
                what = f"entries {self.seen + 1} to {seq - 1} are missing before this one"
                self._fault(at, seq, what, "MISSING")
            self._tracker.miss()
            self.clients.lose(missing)
        self.excused = 0

    def _arrive(self, seq: int) -> None:
        self.seen = seq
        if seq in self._stops:
            self._stop(seq)

    def _stop(self, seq: int) -> None:
        """Check the artefacts at this size."""
        self._tracker.settle(seq)
        if self._tracker.peaks is not None:
            self._artefacts.at(seq, self._begin, self._tracker.peaks, self.last_ts)

    def _is_own(self, receipt: Receipt) -> bool:
        """Whether the hub signed this receipt for this label."""
        try:
            self._context.hub.verify_receipt(receipt)
        except Untrusted:
            return False
        return receipt.label == self._task.label

    def _learn(self, frame: SoundFrame) -> None:
        """Collect the use of a rate and the control record of an entry."""
        msg = frame.framed.msg
        if msg.auth_ref is not None and msg.auth_ref in self._rated:
            use = (msg.auth_ref, frame.framed.receipt.hub_ts)
            self.uses[use] = self.uses.get(use, 0) + 1
        if self._is_control:
            self._control(frame)

    def _control(self, frame: SoundFrame) -> None:
        """Check that the hub signed a control record, and the issuer the capability in it."""
        msg, receipt = frame.framed.msg, frame.framed.receipt
        try:
            record = ControlRecord.of(msg)
        except Malformed as error:
            self._fault(frame.at, receipt.stream_seq, str(error), "CONTROL")
            return
        hub_ts, keys = receipt.hub_ts, self._context.hub.hub_keys
        if msg.client_id not in [key.hub_pk for key in keys if key.overlaps(hub_ts, hub_ts)]:
            what = "a control record that the hub did not sign"
            self._fault(frame.at, receipt.stream_seq, what, "CONTROL")
        token = record.token()
        try:
            if token is not None:
                token.verify_chain()
        except Untrusted as error:
            self._fault(frame.at, receipt.stream_seq, str(error), "I7")
        self.control_records.append(LoggedControl(record, receipt.stream_seq, receipt.hub_ts))

    def finish(self) -> None:
        """Record the faults known only at the end: queued signatures and some wrong roots."""
        self._check_signatures()
        for seq, at in self._tracker.wrong:
            self._fault(at, seq, "mmr_root is not the root after appending leaf_hash", "I3")

    def _check_signatures(self) -> None:
        for at, seq, (code, what) in self._pairs.unsigned():
            self._fault(at, seq, what, code)

    def _fault(self, at: int, seq: int, what: str, code: str) -> None:
        self.faults.append(AuditFault(self._file, at, seq, what, code))


class _Seal(NamedTuple):
    """The result of checking the seal of a chunk."""

    rolled: ChunkTally | None = None
    if_whole: tuple[AuditFault, ...] = ()
    if_not: tuple[AuditFault, ...] = ()


def audit_chunk(
    task: Task, read: Read, context: Context, *, see: See = no_observer, hint: Hint = no_hint
) -> ChunkFindings:
    """Audit a chunk, sealed or open."""
    raw = read(task.file) or b""
    frames = split(raw, task.label, context.limits)
    begin, first = _begin(frames)
    first_ts = first.receipt.hub_ts if first else None
    start = task.start or guess_start(task, read, context, first_ts)
    run = _ChunkAudit(task, start, read, context, see, hint).run(raw, chain(begin, frames))
    return replace(
        run,
        first_seq=first.receipt.stream_seq if first else None,
        first_size=first.header.whole_size if first and len(begin) == 1 else None,
    )


def guess_start(task: Task, read: Read, context: Context, first_ts: int | None) -> Start:
    """The start of a chunk by its name, its snapshot and its first entry."""
    seen = task.segment.start_seq - 1
    began = task.first_ts if task.first_ts is not None else first_ts
    origin = None if began is None else context.origin(task.label, began)
    return Start(seen, read_snapshot(read, task.label, seen), 0, origin)


def chunk_artefacts(task: Task, start: Start, read: Read, context: Context) -> Artefacts:
    origin = start.origin if start.origin and start.origin.from_first else None
    return Artefacts(task, read, context, origin, start.last_ts)


def _begin(
    frames: Iterator[SoundFrame | DamagedFrame],
) -> tuple[list[SoundFrame | DamagedFrame], FramedEntry | None]:
    """The frames up to the first sound frame, and its entry."""
    leading: list[SoundFrame | DamagedFrame] = []
    for frame in frames:
        leading.append(frame)
        if isinstance(frame, SoundFrame):
            return leading, frame.framed
    return leading, None


class _ChunkAudit:
    def __init__(
        self, task: Task, start: Start, read: Read, context: Context, see: See, hint: Hint
    ) -> None:
        self._task = task
        self._start = start
        self._tracker = MmrTracker(task, read, start.peaks, hint)
        self._artefacts = chunk_artefacts(task, start, read, context)
        self._walk = EntryWalk(task, start, context, self._tracker, self._artefacts, see)
        self._walk.clients.place_by(lambda: self._walk.seen)
        self._misplaced = MisplacedCheck(task, start, context)
        self._notes: list[str] = []

    def run(self, raw: bytes, frames: Iterable[SoundFrame | DamagedFrame]) -> ChunkFindings:
        last: SoundFrame | DamagedFrame | None = None
        size = len(raw)
        for frame in frames:
            if last is not None:
                self._walk.take(last)
            last = frame
        is_torn = self._task.kind is FindingKind.OPEN and isinstance(last, DamagedFrame)
        if is_torn and isinstance(last, DamagedFrame):
            self._torn(last, size)
        elif last is not None:
            self._walk.take(last)
        self._walk.finish()
        self._misplaced.look(raw, self._walk.faults)
        seal = self._seal(size, is_torn=is_torn)
        self._artefacts.finish()
        return self._findings(size, seal)

    def _torn(self, torn: DamagedFrame, size: int) -> None:
        """Note a torn tail of a crash; it is a fault if a receipt was given for it."""
        if self._walk.seen < self._task.promised:
            self._walk.take(torn)
        else:
            self._notes.append(
                f"{self._task.file}: a torn tail of {size - torn.at} bytes at {torn.at}, "
                "cut at the next start"
            )

    def _seal(self, size: int, *, is_torn: bool) -> _Seal:
        """Check that a sealed chunk ends where its name and its summary say."""
        walk, segment = self._walk, self._task.segment
        actual = ChunkName(segment.label, self._start.seen + 1, walk.seen)
        if isinstance(segment, ChunkName):
            end = segment.end_seq
        elif not is_torn and walk.hashes and actual in self._task.summaries:
            self._notes.append(f"{self._task.file}: a seal that the next start will finish")
            end = walk.seen
        else:
            return _Seal()
        if walk.seen != end and not walk.excused:
            what = f"expected to end at {end} by its name, got {walk.seen}"
            walk.faults.append(AuditFault(self._task.file, size, walk.seen, what, "NAME"))
        walk.excused = end
        return self._summary(actual, actual._replace(end_seq=end))

    def _summary(self, actual: ChunkName, expected: ChunkName) -> _Seal:
        peaks, walk = self._tracker.peaks, self._walk
        # An entry that is there twice does not damage the others.
        is_sound = all(fault.code == ORDER for fault in (*walk.faults, *self._misplaced.faults))
        is_whole = is_sound and actual.start_seq == self._task.segment.start_seq
        if not is_whole and actual not in self._task.summaries:
            alone = self._artefacts.summary_alone(expected, peaks if actual == expected else None)
        else:
            alone = self._artefacts.summary_alone(actual, peaks)
        if not is_whole:
            self._notes.append(
                f"{self._task.file}: its summary is compared by place and root alone, "
                "since not all of its entries are right"
            )
            return _Seal(None, tuple(alone), tuple(alone))
        hashes = Peaks(len(walk.hashes), mmr.peaks_of(walk.hashes))
        tally = ChunkTally(actual.start_seq, len(walk.hashes), walk.size, hashes)
        return _Seal(tally, tuple(self._artefacts.summary(actual, tally, peaks)), tuple(alone))

    def _findings(self, size: int, seal: _Seal) -> ChunkFindings:
        walk, artefacts, start = self._walk, self._artefacts, self._start
        if self._tracker.adrift:
            first, last = self._tracker.adrift[0], self._tracker.adrift[-1]
            self._notes.append(
                f"{self._task.file}: the roots of entries {first} to {last} "
                "rest on entries that are missing or cannot be read"
            )
        return ChunkFindings(
            task=self._task,
            start=start,
            is_confirmed=walk.is_confirmed or artefacts.is_vouched(start.peaks),
            first_ts=walk.first_ts,
            seen=walk.seen,
            peaks=self._tracker.peaks,
            last_ts=walk.last_ts,
            excused=walk.excused,
            size=size,
            entries=len(walk.hashes),
            checkpoints=artefacts.checkpoints,
            faults=(*walk.faults, *self._misplaced.faults, *artefacts.faults),
            if_whole=seal.if_whole,
            if_not=seal.if_not,
            notes=tuple(self._notes),
            firsts=tuple(walk.clients.firsts.items()),
            lasts=tuple(walk.clients.lasts.items()),
            gaps=tuple(walk.clients.gaps),
            after=tuple(walk.clients.after.items()),
            misplaced=tuple(self._misplaced.misplaced),
            uses=tuple(RateUse(ref, hub_ts, count) for (ref, hub_ts), count in walk.uses.items()),
            control_records=tuple(walk.control_records),
            refs=tuple(artefacts.refs.items()),
            bindings=tuple(artefacts.bindings),
            rolled=seal.rolled,
        )
