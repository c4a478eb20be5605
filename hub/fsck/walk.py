"""One label, walked from its first entry to its last; a fault is reported and walked past."""

from __future__ import annotations

from typing import Final

from hub.control import ControlRecord, control_label
from hub.fsck.check import Check
from hub.fsck.checkpoints import Checkpoints
from hub.fsck.frames import Bad, Good, split
from hub.fsck.nodes import NodeCheck
from hub.fsck.pair import PairCheck
from hub.fsck.report import Head
from hub.fsck.seals import SealCheck
from hub.fsck.tombs import read_tomb
from hub.storage import pruned
from hub.storage.index import ChunkRow
from hub.storage.inventory import LabelFiles
from hub.storage.logged import Logged
from veen import layout
from veen.chunk import Tally
from veen.errors import Malformed
from veen.layout import ChunkName, OpenChunkName
from veen.receipt import Receipt

_ANY: Final = 1 << 64


class LabelWalk:
    def __init__(self, check: Check, files: LabelFiles) -> None:
        self._check = check
        self._files = files
        self._label = files.label
        self._nodes = NodeCheck(check, files.label)
        ends = {one.end_seq for one in (*files.chunks, *files.tombstones)}
        self._checkpoints = Checkpoints(check, files.label, files.checkpoints | ends)
        self._checkpoints.expect_listed()
        self._pairs = PairCheck(check, files.label, self._nodes)
        self._label_no = 0
        self._seen = 0
        self._excused = 0
        self._last_ts = 0
        self._seals = SealCheck(check)

    def run(self) -> None:
        for segment in self._files.segments():
            self._segment(segment)
        self._end()
        self._checkpoints.finish()
        root = self._pairs.peaks.root() if self._pairs.peaks and self._seen else None
        self._check.findings.heads[self._label] = Head(self._seen, root)
        if self._label_no:
            ends = sorted(self._files.checkpoints)
            self._check.relearner.add_checkpoints(self._label_no, ends)
        self._nodes.finish()

    def _segment(self, segment: ChunkName | OpenChunkName) -> None:
        if isinstance(segment, OpenChunkName):
            self._chunk(layout.open_chunk(segment), segment.start_seq, None)
        elif segment in self._files.chunks:
            self._chunk(layout.chunk(segment), segment.start_seq, segment.end_seq)
        else:
            self._pruned(segment)

    def _chunk(self, name: str, start: int, end: int | None) -> None:
        findings = self._check.findings
        findings.chunks += 1
        raw = self._check.read(name) or b""
        frames = list(split(raw, self._label, self._check.limits))
        self._skip_missing(frames, start)
        faults, first, tally = len(findings.faults), self._seen + 1, Tally.starting_at(start)
        if first != start:
            what = f"begins at {first}, not at {start} as its name says"
            findings.fault(name, 0, first, what, "NAME")
        torn = frames.pop() if end is None and frames and isinstance(frames[-1], Bad) else None
        batch: list[Logged] = []
        for frame in frames:
            if isinstance(frame, Bad):
                self._bad(name, frame, first)
            elif self._good(name, frame, first, batch):
                header = frame.framed.header
                tally = tally.plus(header.whole_size, header.entry_hash)
        if isinstance(torn, Bad):
            self._torn(name, torn, first, len(raw))
        self._check.relearner.take(self._label_no, first, batch)
        self._pairs.settle(self._seen)
        self._seals.follow(name, frames)
        self._check.advance(len(raw))
        half_done = ChunkName(self._label, first, self._seen)
        if end is None and torn is None and batch and half_done in self._files.summaries:
            findings.note(f"{name}: a seal that the next start will finish")
            end = self._seen
        if end is not None:
            self._sealed(name, ChunkName(self._label, first, end), len(raw), tally, faults)

    def _sealed(self, name: str, due: ChunkName, size: int, tally: Tally, faults: int) -> None:
        """A sealed chunk must end where its name says, and its summary must say so too."""
        findings = self._check.findings
        if self._seen != due.end_seq and self._excused < _ANY:
            what = f"ends after {self._seen}, its name says {due.end_seq}"
            findings.fault(name, size, self._seen, what, "NAME")
            self._excused = max(self._excused, due.end_seq)
        actual = ChunkName(self._label, due.start_seq, self._seen)
        is_whole = faults == len(findings.faults)
        if is_whole or actual in self._files.summaries:
            self._seals.sealed(actual, tally if is_whole else None, self._pairs.peaks)
        else:
            self._seals.sealed(due, None, self._pairs.peaks if actual == due else None)
        if self._label_no:
            row = ChunkRow(self._label_no, due.start_seq, self._seen, size, self._last_ts)
            self._check.relearner.seal(row)

    def _good(self, name: str, frame: Good, start: int, batch: list[Logged]) -> bool:
        """Whether the entry stands where it should; then it is checked and learnt."""
        findings, receipt = self._check.findings, frame.framed.receipt
        seq = receipt.stream_seq
        if seq <= self._seen:
            what = f"stream_seq {seq} comes after {self._seen}"
            findings.fault(name, frame.at, seq, what, "ORDER")
            return False
        self._gap(name, frame.at, seq)
        self._begin(receipt)
        findings.entries += 1
        if receipt.hub_ts < self._last_ts:
            what = f"hub_ts goes back from {self._last_ts} to {receipt.hub_ts}"
            findings.fault(name, frame.at, seq, what, "TIME")
        self._last_ts = max(self._last_ts, receipt.hub_ts)
        self._pairs.check_pair(name, frame)
        self._arrive(seq, start)
        batch.append(Logged.of(frame.framed, frame.at))
        self._learn_control(name, frame)
        return True

    def _bad(self, name: str, frame: Bad, start: int) -> None:
        receipt = frame.receipt
        known = receipt is not None and self._pairs.is_own(receipt) and self._is_next(receipt)
        seq = receipt.stream_seq if receipt is not None and known else None
        self._check.findings.fault(name, frame.at, seq or self._seen + 1, frame.why, "FRAME")
        if receipt is None or seq is None:
            self._excused = _ANY
            self._pairs.lose(frame.msg)
            return
        self._begin(receipt)
        self._gap(name, frame.at, seq)
        self._pairs.salvage(receipt, frame.msg)
        self._arrive(seq, start)

    def _is_next(self, receipt: Receipt) -> bool:
        return receipt.label == self._label and receipt.stream_seq > self._seen

    def _gap(self, name: str, at: int, seq: int) -> None:
        missing = seq - self._seen - 1
        if missing and seq - 1 > self._excused:
            what = f"entries {self._seen + 1} to {seq - 1} are missing before this one"
            self._check.findings.fault(name, at, seq, what, "MISSING")
        self._pairs.miss(missing)
        self._excused = 0

    def _arrive(self, seq: int, start: int) -> None:
        self._seen = seq
        peaks = self._pairs.peaks
        if peaks is None:
            return
        if seq in self._checkpoints.due:
            self._checkpoints.at(seq, start, peaks)
        elif seq in self._files.peaks:
            self._checkpoints.snapshot(peaks)

    def _begin(self, receipt: Receipt) -> None:
        if not self._label_no:
            self._enter(receipt.hub_ts)

    def _enter(self, first_ts: int) -> None:
        relearner = self._check.relearner
        self._label_no = relearner.begin(self._label, first_ts)
        self._pairs.label_no = self._label_no
        origin = relearner.origin(self._label, first_ts)
        self._pairs.origin = origin
        if origin is not None and origin.since <= first_ts:
            self._checkpoints.labels = origin.labels
            self._checkpoints.epoch = origin.epoch

    def _learn_control(self, name: str, frame: Good) -> None:
        if self._label != control_label(self._check.hub.hub_id):
            return
        receipt = frame.framed.receipt
        try:
            record = ControlRecord.of(frame.framed.msg)
        except Malformed as error:
            self._check.findings.fault(name, frame.at, receipt.stream_seq, str(error), "CONTROL")
            return
        self._pairs.check_control(name, frame, record)
        self._check.relearner.learn(record, receipt.stream_seq, receipt.hub_ts)

    def _skip_missing(self, frames: list[Good | Bad], start: int) -> None:
        """Name the chunks between what was seen and this one, unless its contents go on there."""
        first = next((one.framed.receipt.stream_seq for one in frames if isinstance(one, Good)), 0)
        due = self._seen + 1
        if start <= due or first == due:
            return
        if start - 1 > self._excused:
            for name in self._files.missing(due, start - 1):
                self._check.findings.fault(name, 0, due, "the chunk is missing", "MISSING")
        self._pairs.miss(start - due)
        self._seen = start - 1

    def _torn(self, name: str, torn: Bad, start: int, size: int) -> None:
        """Bytes after the last whole entry: of a crash, unless a receipt was given for them."""
        due = self._seen + 1
        promised = max(self._check.acknowledged.get(self._label, 0), *self._checkpoints.due, 0)
        if due <= promised:
            self._bad(name, torn, start)
        else:
            self._check.findings.note(
                f"{name}: a torn tail of {size - torn.at} bytes at {torn.at}, cut at the next start"
            )

    def _end(self) -> None:
        """The log must reach whatever this hub has signed or sealed."""
        signed = max(self._checkpoints.due, default=0)
        promised = max(signed, self._check.acknowledged.get(self._label, 0))
        if promised > max(self._seen, self._excused):
            for name in self._files.missing(self._seen + 1, promised):
                what = f"the log ends at {self._seen}, this hub has vouched for {promised}"
                self._check.findings.fault(name, 0, self._seen + 1, what, "MISSING")

    def _pruned(self, name: ChunkName) -> None:
        self._skip_missing([], name.start_seq)
        tomb = read_tomb(self._check, name)
        if tomb is None:
            self._excused = max(self._excused, name.end_seq)
            return
        if not self._label_no:
            self._enter(tomb.entries[0].hub_ts)
        for one in tomb.entries:
            self._pairs.follow(one)
            self._arrive(one.seq, name.start_seq)
        self._last_ts = tomb.entries[-1].hub_ts
        relearner = self._check.relearner
        relearner.take(self._label_no, name.start_seq, tomb.entries)
        self._pairs.settle(self._seen)
        size = tomb.tombstone.chunk_bytes
        row = ChunkRow(self._label_no, name.start_seq, name.end_seq, size, self._last_ts)
        relearner.seal(row)
        peaks = self._pairs.peaks
        if peaks is not None and peaks.root() != tomb.summary.mmr_root_end:
            what = "its leaves do not lead to the root of the summary"
            self._check.findings.fault(pruned.leaves(name), 0, name.start_seq, what, "I3")
