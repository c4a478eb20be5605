"""One replay from source to output: planned or taken up again, run, and told of.

The run of a replay: the stretches of all streams, merged into one order (I1).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from recorder.replay import output
from recorder.replay.output import FileSink, OutputExists, PipeSink, Sink
from recorder.replay.plan import ReplayPlan, ReplayRequest, ReplaySource, StreamRange, at, plan
from recorder.replay.read import ProvedReader, VerifiedPage
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
    """An item, and the proof that goes before it when it is the first of a portion."""

    item: Item
    proof: Proof | None


def run(source: ReplaySource, course: OutputCursor) -> Iterator[Proof | Item]:
    """What is still to come of a replay, in order; the course moves on with it."""
    streams = [
        _StreamState(source, course.plan, stream_range)
        for stream_range in course.plan.stream_ranges
    ]
    turns = [stream.turns(course.of(stream.stream)) for stream in streams]
    for turn in heapq.merge(*turns, key=lambda turn: turn.item.order):
        if turn.proof is not None:
            course.proof(turn.proof)
            yield turn.proof
        item = turn.item
        course.item(item.stream, item.receipt, proven=item.proven)
        course.kinds[item.kind.value] += 1
        yield item
    course.verify_complete()


class _StreamState:
    def __init__(self, source: ReplaySource, plan: ReplayPlan, stream_range: StreamRange) -> None:
        self._source = source
        self._plan = plan
        self._stream_range = stream_range
        self._reader = ProvedReader(source, plan)
        self.stream = stream_range.stream

    def turns(self, place: StreamAt) -> Iterator[_Turn]:
        """From where an output ended; what it ended with is read and proven once more."""
        start = place.next_seq
        if place.is_amid_proof:
            batch = self._reader.batch(self._stream_range, place.proof_from, place.proof_to)
            self._verify_last(batch, place)
            # The proof itself stands in the output already.
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
        """What the output ends with must be what the log has there."""
        for pair in batch.pairs:
            receipt = pair.receipt
            if receipt.stream_seq == place.next_seq - 1 and receipt.leaf_hash != place.leaf:
                raise Untrusted(
                    f"{at(self.stream, receipt.stream_seq)}: the output has another message there; "
                    "it is of another replay"
                )


class OtherReplay(VeenError):
    """The output that is to be taken up again is of another replay."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """``new`` is what this run has written, and ``kinds`` what it was."""

    plan: ReplayPlan
    new: int
    kinds: dict[str, int]


Choose = Callable[[], RecorderCheckpoint]
"""The checkpoint to prove against, asked for when no earlier run has chosen it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``chosen`` is the checkpoint that was named; without it an output keeps to its own.

    What is wanted may depend on the checkpoint, as all of its streams do.
    """

    source: ReplaySource
    requested: Callable[[RecorderCheckpoint], ReplayRequest]
    latest: Choose
    chosen: RecorderCheckpoint | None = None
    progress: Progress = no_progress

    def to_pipe(self, pipe: BinaryIO, form: RecordFormat) -> Replayed:
        course = OutputCursor(self._plan())
        sink = PipeSink(pipe, form, course.plan)
        sink.put(course.plan)
        return self._run(course, sink)

    def to_file(self, path: Path, form: RecordFormat, *, resume: bool) -> Replayed:
        course, size = self._found(path, form, resume=resume)
        if course is None:
            course = OutputCursor(self._plan())
        else:
            self._verify_same(path, course.plan)
        sink = FileSink(path, form, course.plan, size)
        if size == 0:
            sink.put(course.plan)
        return self._run(course, sink)

    def to_parts(self, folder: Path, *, resume: bool) -> Replayed:
        # It takes a third of a second to load, and only Parquet needs it.
        from recorder.replay import parquet  # noqa: PLC0415

        known = parquet.plan_in(folder)
        if known is not None and not resume:
            raise _exists(folder)
        if known is not None:
            self._verify_same(folder, known)
        plan = known or self._plan()
        course = parquet.course_in(folder, plan) if known else OutputCursor(plan)
        return self._run(course, parquet.ParquetSink(folder, course))

    def _run(self, course: OutputCursor, sink: Sink) -> Replayed:
        before, count = course.done, course.plan.count
        done = before
        try:
            for record in run(self.source, course):
                sink.put(record)
                if course.done != done:
                    done = course.done
                    self.progress(done, count)
            sink.close()
        except BaseException:
            sink.abandon()
            raise
        return Replayed(course.plan, course.done - before, dict(course.kinds))

    def _plan(self) -> ReplayPlan:
        checkpoint = self.chosen or self.latest()
        return plan(self.source, self.requested(checkpoint), checkpoint)

    def _found(
        self, path: Path, form: RecordFormat, *, resume: bool
    ) -> tuple[OutputCursor | None, int]:
        if not path.exists():
            return None, 0
        if not resume:
            raise _exists(path)
        course, size = output.course_of(path, form)
        if course is None:
            output.refuse_foreign(path, form)
        return course, size

    def _verify_same(self, path: Path, known: ReplayPlan) -> None:
        """What is there must be what would be there after the same words."""
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
    return OutputExists(f"{path} is there already; take it up again with --resume, or remove it")


def _differences(known: ReplayRequest, request: ReplayRequest) -> str:
    old, new = known.to_json(), request.to_json()
    names = sorted(item for item in old.keys() | new.keys() if old.get(item) != new.get(item))
    return ", ".join(f"{name} was {old.get(name)} and is {new.get(name)}" for name in names)
