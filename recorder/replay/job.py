"""A replay from source to output: planned or resumed, run, and reported (I1).

The ranges of all streams are merged into one order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from recorder.replay import output
from recorder.replay.output import (
    BLOCK_BYTES,
    GROUP_ROWS,
    PART_ROWS,
    FileSink,
    OutputExists,
    PipeSink,
    Sink,
)
from recorder.replay.plan import ReplayPlan, ReplayRequest, ReplaySource, StreamRange, at, plan
from recorder.replay.read import VerifiedPage, VerifiedReader
from recorder.replay.records import (
    Item,
    OutputCursor,
    Proof,
    RecordFormat,
    StreamAt,
    opened_item,
    sealed_item,
)
from veen.client.log_head import Pair
from veen.errors import Untrusted, VeenError
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.environment import Progress, no_progress


class _Turn(NamedTuple):
    """An item, and the proof before it when it is the first of a page."""

    item: Item
    proof: Proof | None


def run(source: ReplaySource, cursor: OutputCursor) -> Iterator[Proof | Item]:
    """Yield the rest of a replay in order, advancing the cursor."""
    streams = [
        _StreamState(source, cursor.plan, stream_range)
        for stream_range in cursor.plan.stream_ranges
    ]
    turns = [stream.turns(cursor.of(stream.stream)) for stream in streams]
    for turn in heapq.merge(*turns, key=lambda turn: turn.item.order):
        if turn.proof is not None:
            cursor.proof(turn.proof)
            yield turn.proof
        item = turn.item
        cursor.item(item.stream, item.receipt, proven=item.proven)
        cursor.kinds[item.kind.value] += 1
        yield item
    cursor.verify_complete()


class _StreamState:
    """Reads the range of a stream."""

    def __init__(self, source: ReplaySource, plan: ReplayPlan, stream_range: StreamRange) -> None:
        self._source = source
        self._plan = plan
        self._stream_range = stream_range
        self._reader = VerifiedReader(source, plan)
        self.stream = stream_range.stream

    def turns(self, place: StreamAt) -> Iterator[_Turn]:
        """Yield from where an output ended; its last record is read and verified again."""
        start = place.next_seq
        if place.is_within_proof:
            batch = self._reader.batch(self._stream_range, place.proof_from, place.proof_to)
            self._verify_last(batch, place)
            # The proof itself is in the output already.
            for pair in batch.pairs:
                if pair.receipt.stream_seq >= start:
                    yield _Turn(self._item(pair, proven=True), None)
            start = place.proof_to + 1
        elif place.leaf and not self._plan.requested.with_proofs:
            batch = self._reader.batch(self._stream_range, start - 1, start - 1)
            self._verify_last(batch, place)
        for batch in self._reader.batches(self._stream_range, start, self._stream_range.to_seq):
            yield from self._batch(batch)

    def _batch(self, batch: VerifiedPage) -> Iterator[_Turn]:
        proof = None
        if batch.proof is not None and self._plan.requested.with_proofs:
            proof = Proof(stream=batch.stream, proof=batch.proof)
        for pair in batch.pairs:
            yield _Turn(self._item(pair, proven=batch.proof is not None), proof)
            proof = None

    def _item(self, pair: Pair, *, proven: bool) -> Item:
        if self._plan.requested.opened:
            return opened_item(self._source, self.stream, pair, proven=proven)
        return sealed_item(self.stream, pair, proven=proven)

    def _verify_last(self, batch: VerifiedPage, place: StreamAt) -> None:
        """The last item of the output must be what the log has at that position."""
        for pair in batch.pairs:
            receipt = pair.receipt
            if receipt.stream_seq == place.next_seq - 1 and receipt.leaf_hash != place.leaf:
                raise Untrusted(
                    f"{at(self.stream, receipt.stream_seq)}: the output has another message there; "
                    "it belongs to another replay"
                )


class OtherReplay(VeenError):
    """The output to resume is of another replay."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a run: ``new`` items were written, counted in ``kinds``."""

    plan: ReplayPlan
    new: int
    kinds: dict[str, int]


Choose = Callable[[], RecorderCheckpoint]
"""Returns the checkpoint to prove against, if no earlier run has chosen it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A replay; ``chosen`` is the requested checkpoint, without which a resumed output keeps its
    own.

    The request may depend on the checkpoint, for example to include all of its streams.
    """

    source: ReplaySource
    requested: Callable[[RecorderCheckpoint], ReplayRequest]
    latest: Choose
    chosen: RecorderCheckpoint | None = None
    progress: Progress = no_progress
    block_bytes: int = BLOCK_BYTES
    part_rows: int = PART_ROWS
    group_rows: int = GROUP_ROWS

    def to_pipe(self, pipe: BinaryIO, form: RecordFormat) -> Replayed:
        cursor = OutputCursor(self._plan())
        sink = PipeSink(pipe, form, cursor.plan)
        sink.put(cursor.plan)
        return self._run(cursor, sink)

    def to_file(self, path: Path, form: RecordFormat, *, resume: bool) -> Replayed:
        cursor, size = self._resumed(path, form, resume=resume)
        if cursor is None:
            cursor = OutputCursor(self._plan())
        else:
            self._verify_same(path, cursor.plan)
        sink = FileSink(path, form, cursor.plan, size, self.block_bytes)
        if size == 0:
            sink.put(cursor.plan)
        return self._run(cursor, sink)

    def to_parts(self, folder: Path, *, resume: bool) -> Replayed:
        # Importing it takes a third of a second, and only Parquet needs it.
        from recorder.replay import parquet  # noqa: PLC0415

        known = parquet.plan_in(folder)
        if known is not None and not resume:
            raise _exists(folder)
        if known is not None:
            self._verify_same(folder, known)
        plan = known or self._plan()
        cursor = parquet.cursor_in(folder, plan) if known else OutputCursor(plan)
        sink = parquet.ParquetSink(folder, cursor, self.part_rows, self.group_rows)
        return self._run(cursor, sink)

    def _run(self, cursor: OutputCursor, sink: Sink) -> Replayed:
        before, count = cursor.done, cursor.plan.count
        done = before
        try:
            for record in run(self.source, cursor):
                sink.put(record)
                if cursor.done != done:
                    done = cursor.done
                    self.progress(done, count)
            sink.close()
        except BaseException:
            sink.abandon()
            raise
        return Replayed(cursor.plan, cursor.done - before, dict(cursor.kinds))

    def _plan(self) -> ReplayPlan:
        checkpoint = self.chosen or self.latest()
        return plan(self.source, self.requested(checkpoint), checkpoint)

    def _resumed(
        self, path: Path, form: RecordFormat, *, resume: bool
    ) -> tuple[OutputCursor | None, int]:
        if not path.exists():
            return None, 0
        if not resume:
            raise _exists(path)
        cursor, size = output.cursor_of(path, form)
        if cursor is None:
            output.verify_replay_start(path, form)
        return cursor, size

    def _verify_same(self, path: Path, known: ReplayPlan) -> None:
        """The existing output must be of the same request and checkpoint."""
        known.verify(self.source.hub.hub_id)
        expected = self.requested(known.checkpoint)
        if known.requested != expected:
            differences = _differences(known.requested, expected)
            raise OtherReplay(f"{path} is the output of another replay: {differences}")
        if self.chosen is not None and self.chosen.encode() != known.checkpoint.encode():
            raise OtherReplay(
                f"{path} was begun against checkpoint {known.checkpoint_id.hex()}, not "
                f"{self.chosen.checkpoint_id.hex()}"
            )


def _exists(path: Path) -> OutputExists:
    return OutputExists(f"{path} exists; continue it with --resume, or remove it")


def _differences(known: ReplayRequest, request: ReplayRequest) -> str:
    old, new = known.to_json(), request.to_json()
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(f"{name} was {old.get(name)} and is {new.get(name)}" for name in names)
