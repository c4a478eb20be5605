"""The run of a replay: the stretches of all streams, merged into one order (I1)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from recorder.replay.course import Course, StreamAt
from recorder.replay.item import Item, opened_item, sealed_item
from recorder.replay.plan import Plan
from recorder.replay.proved import Portion, ProvedReader
from recorder.replay.record import Proof
from recorder.replay.source import Source
from recorder.replay.stretch import Stretch, at
from veen.client.pair import Pair
from veen.errors import Untrusted


class _Turn(NamedTuple):
    """An item, and the proof that goes before it when it is the first of a portion."""

    item: Item
    proof: Proof | None


def run(source: Source, course: Course) -> Iterator[Proof | Item]:
    """What is still to come of a replay, in order; the course moves on with it."""
    streams = [_Lane(source, course.plan, one) for one in course.plan.stretches]
    turns = [one.turns(course.of(one.stream)) for one in streams]
    for turn in heapq.merge(*turns, key=lambda turn: turn.item.order):
        if turn.proof is not None:
            course.proof(turn.proof)
            yield turn.proof
        item = turn.item
        course.item(item.stream, item.receipt, proven=item.proven)
        course.kinds[item.kind.value] += 1
        yield item
    course.verify_complete()


class _Lane:
    def __init__(self, source: Source, plan: Plan, stretch: Stretch) -> None:
        self._source = source
        self._plan = plan
        self._stretch = stretch
        self._reader = ProvedReader(source, plan)
        self.stream = stretch.stream

    def turns(self, place: StreamAt) -> Iterator[_Turn]:
        """From where an output ended; what it ended with is read and proven once more."""
        start = place.next_seq
        if place.is_amid_proof:
            portion = self._reader.portion(self._stretch, place.proof_from, place.proof_to)
            self._verify_last(portion, place)
            # The proof itself stands in the output already.
            for pair in portion.pairs:
                if pair.receipt.stream_seq >= start:
                    yield _Turn(self._item(pair, proven=True), None)
            start = place.proof_to + 1
        elif place.leaf and not self._plan.wanted.with_proofs:
            portion = self._reader.portion(self._stretch, start - 1, start - 1)
            self._verify_last(portion, place)
        for portion in self._reader.portions(self._stretch, start, self._stretch.to_seq):
            yield from self._portion(portion)

    def _portion(self, portion: Portion) -> Iterator[_Turn]:
        proof = None
        if portion.proof is not None and self._plan.wanted.with_proofs:
            proof = Proof(stream=portion.stream, proof=portion.proof)
        for pair in portion.pairs:
            yield _Turn(self._item(pair, proven=portion.proof is not None), proof)
            proof = None

    def _item(self, pair: Pair, *, proven: bool) -> Item:
        if self._plan.wanted.opened:
            return opened_item(self._source, self.stream, pair, proven=proven)
        return sealed_item(self.stream, pair, proven=proven)

    def _verify_last(self, portion: Portion, place: StreamAt) -> None:
        """What the output ends with must be what the log has there."""
        for pair in portion.pairs:
            receipt = pair.receipt
            if receipt.stream_seq == place.next_seq - 1 and receipt.leaf_hash != place.leaf:
                raise Untrusted(
                    f"{at(self.stream, receipt.stream_seq)}: the output has another message there; "
                    "it is of another replay"
                )
