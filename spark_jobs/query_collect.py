"""What the chunks of a query come to together: roots that must be the checkpoint's, and spans.

What was found for many questions, handed out question by question without being held.

One reading of an archive as Spark tasks, and what it found, in the order of what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

from pyspark import StorageLevel

from recorder.query.execute import StreamSpan
from recorder.query.select import merge_cells
from spark_jobs.query_chunk import Numbered, ProofTerms, Proven, QueryTerms, is_drawn, look, prove
from spark_jobs.query_nodes import Place, Upper
from spark_jobs.query_plan import (
    ChunkFacts,
    ChunkTask,
    Found,
    Grouped,
    QuestionTally,
    Refused,
    StreamPlan,
    TakenRows,
)
from veen.errors import Untrusted

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.core.broadcast import Broadcast


class StreamFindings(NamedTuple):
    """One stream whose root was reached: its nodes for proofs, and what each question found."""

    stream: str
    size: int
    upper: Mapping[Place, bytes]
    spans: Mapping[int, StreamSpan]
    unread: Mapping[int, int]
    matched: Mapping[int, int]


def findings(plan: StreamPlan, facts: Mapping[int, ChunkFacts]) -> StreamFindings:
    """Refuse unless the chunks follow each other and lead to the root of the checkpoint."""
    result = [facts[piece.number] for piece in plan.pieces]
    upper = _reached(plan, facts)
    spans, unread, matched = {}, {}, {}
    start = plan.peaks.size + 1
    for question in plan.questions:
        tally = _total([item.tallies[question] for item in result])
        spans[question] = StreamSpan(start + tally.before, start + tally.upto - 1)
        unread[question], matched[question] = tally.unread, tally.matched
    return StreamFindings(plan.stream, plan.end.last_seq, upper.nodes, spans, unread, matched)


def _reached(plan: StreamPlan, facts: Mapping[int, ChunkFacts]) -> Upper:
    _verify_times(plan, facts)
    upper = Upper(plan.peaks)
    for piece in plan.pieces:
        _append(upper, plan, piece, facts)
    for bridge in plan.bridges:
        upper.graft(bridge.top(facts[bridge.piece.number].tops))
    for piece in plan.last:
        _append(upper, plan, piece, facts)
    if upper.peaks.size != plan.end.last_seq:
        raise _untrusted(plan, f"its chunks end at {upper.peaks.size}")
    if upper.peaks.size and upper.peaks.root() != plan.end.mmr_root:
        raise _untrusted(plan, "its chunks do not lead to the root of the checkpoint")
    return upper


def _verify_times(plan: StreamPlan, facts: Mapping[int, ChunkFacts]) -> None:
    """What was read shows by itself that the span is within it: nobody signs a manifest."""
    last_ts = 0
    for piece in plan.to_read:
        chunk_facts = facts[piece.number]
        if chunk_facts.first_ts < last_ts:
            raise _untrusted(plan, f"times go back at the start of {piece.chunk.file}")
        last_ts = chunk_facts.last_ts
    begins = plan.peaks.size and facts[plan.pieces[0].number].first_ts >= plan.span.first
    ends = plan.bridges and facts[plan.pieces[-1].number].last_ts <= plan.span.last
    if begins or ends:
        raise _untrusted(plan, "the times of its manifest are not those of its chunks")


def _append(
    upper: Upper, plan: StreamPlan, piece: ChunkTask, facts: Mapping[int, ChunkFacts]
) -> None:
    if piece.chunk.name.start_seq != upper.peaks.size + 1:
        raise _untrusted(plan, f"{piece.chunk.file} is not the next chunk after {upper.peaks.size}")
    for top in facts[piece.number].tops[0]:
        upper.graft(top)


def _total(tallies: Sequence[QuestionTally]) -> QuestionTally:
    return QuestionTally(
        *(sum(column) for column in zip(QuestionTally(0, 0, 0, 0), *tallies, strict=True))
    )


def _untrusted(plan: StreamPlan, why: str) -> Untrusted:
    return Untrusted(f"{plan.stream} is not in the archive as recorded: {why}; run verify_log")


T = TypeVar("T")


class Shares(Generic[T]):
    """Items in the order of their questions; each question is asked for once, in that order."""

    def __init__(self, items: Iterator[T], question_of: Callable[[T], int]) -> None:
        self._items = items
        self._question_of = question_of
        self._next = next(items, None)

    def of(self, question: int) -> Iterator[T]:
        while (item := self._next) is not None and self._question_of(item) == question:
            yield item
            self._next = next(self._items, None)


_SORTED: Final = 50_000
"""How much of a result is sorted together, and is in the driver's memory at once."""
_EACH: Final = 4
"""Tasks for each core, so that a slow one does not hold up the others."""


class ArchiveReading:
    """One reading of the archive, whose findings are kept on the executors' disks meanwhile."""

    def __init__(
        self, spark: SparkContext, terms: QueryTerms, plan: Sequence[StreamPlan], partitions: int
    ) -> None:
        self.terms = terms
        self._spark = spark
        self._plan = plan
        pieces = [piece for stream_plan in plan for piece in stream_plan.to_read]
        slices = min(len(pieces), partitions or _EACH * spark.defaultParallelism)
        self._sent = spark.broadcast(terms)
        looked = spark.parallelize(pieces, max(1, slices)).flatMap(partial(_look, self._sent))
        self._found: RDD[Found] = looked.persist(StorageLevel.DISK_ONLY)

    def __enter__(self) -> Gathered:
        try:
            facts = _facts(self._found)
            streams = [findings(item, facts) for item in self._plan]
        except BaseException:
            self.__exit__()
            raise
        groups = sum(fact.groups for fact in facts.values())
        return Gathered(self._spark, self._sent, self._found, streams, groups)

    def __exit__(self, *_: object) -> None:
        self._found.unpersist()
        self._sent.unpersist()


class Gathered:
    """The findings of all chunks, once they were seen to be what the checkpoint speaks of."""

    def __init__(
        self,
        spark: SparkContext,
        sent: Broadcast[QueryTerms],
        found: RDD[Found],
        streams: Sequence[StreamFindings],
        groups: int,
    ) -> None:
        self.streams = streams
        self._sent = sent
        self._found = found
        self._groups = groups
        self._questions = sent.value.questions
        numbers = range(len(self._questions))
        self.matched = [sum(stream.matched.get(at, 0) for stream in streams) for at in numbers]
        counts = [
            0 if question.aggregate is not None and question.evidence.mode == "none" else count
            for question, count in zip(self._questions, self.matched, strict=True)
        ]
        offsets = list(accumulate(counts, initial=0))
        taken = cast("RDD[TakenRows]", found.filter(partial(_is_a, TakenRows))).keyBy(
            attrgetter("key")
        )
        self._taken = taken.sortByKey(numPartitions=_parts(offsets[-1])).values()
        self._proofs = spark.broadcast(
            ProofTerms(
                {stream.stream: stream.upper for stream in streams},
                {stream.stream: stream.size for stream in streams},
                offsets,
            )
        )

    def rows(self) -> Shares[TakenRows]:
        if all(question.aggregate is not None for question in self._questions):
            return Shares(iter(()), _question_of)
        plain = self._taken.filter(_has_row).map(_without_witness)
        return Shares(plain.toLocalIterator(), _question_of)

    def groups(self) -> Shares[Grouped]:
        """What all chunks add to each group, by the bytes of its keys."""
        if all(question.aggregate is None for question in self._questions):
            return Shares(iter(()), _group_question)
        parts = _parts(self._groups)
        pairs: RDD[Any] = self._found.filter(partial(_is_a, Grouped)).map(tuple)
        merged: RDD[Any] = pairs.reduceByKey(merge_cells, parts)
        merged = merged.sortByKey(numPartitions=parts)
        return Shares((Grouped(*item) for item in merged.toLocalIterator()), _group_question)

    def proven(self) -> Shares[Proven]:
        if all(question.evidence.mode == "none" for question in self._questions):
            return Shares(iter(()), attrgetter("question"))
        numbered = self._taken.zipWithIndex().map(partial(_numbered, self._proofs))
        drawn = numbered.filter(partial(_is_drawn, self._sent))
        shown = drawn.map(partial(_prove, self._sent, self._proofs))
        return Shares(_refusing(shown.toLocalIterator()), attrgetter("question"))


def _parts(count: int) -> int:
    return 1 + count // _SORTED


def _facts(value: RDD[Found]) -> dict[int, ChunkFacts]:
    said = value.filter(partial(_is_a, (ChunkFacts, Refused))).collect()
    refused = sorted(metric.detail for metric in said if isinstance(metric, Refused))
    if refused:
        raise Untrusted(refused[0])
    return {metric.number: metric for metric in said if isinstance(metric, ChunkFacts)}


def _refusing(shown: Iterator[Proven | Refused]) -> Iterator[Proven]:
    for item in shown:
        if isinstance(item, Refused):
            raise Untrusted(item.detail)
        yield item


def _look(sent: Broadcast[QueryTerms], piece: ChunkTask) -> list[Found]:
    return look(sent.value, piece)


def _numbered(sent: Broadcast[ProofTerms], value: tuple[TakenRows, int]) -> Numbered:
    return sent.value.numbered(*value)


def _is_drawn(sent: Broadcast[QueryTerms], numbered: Numbered) -> bool:
    return is_drawn(sent.value, numbered)


def _prove(
    sent: Broadcast[QueryTerms], proofs: Broadcast[ProofTerms], numbered: Numbered
) -> Proven | Refused:
    return prove(sent.value, proofs.value, numbered)


def _is_a(kind: type | tuple[type, ...], found: Found) -> bool:
    return isinstance(found, kind)


def _has_row(rows: TakenRows) -> bool:
    return rows.row is not None


def _without_witness(rows: TakenRows) -> TakenRows:
    return rows._replace(shown=None)


def _question_of(rows: TakenRows) -> int:
    return rows.key.question


def _group_question(grouped: Grouped) -> int:
    return grouped.group[0]
