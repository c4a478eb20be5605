"""Collection of the chunk tasks of a query: roots compared with the checkpoint, and spans.

The archive is read once for many queries, and the matches are streamed to each query in output
order without being held in memory.
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
from spark_jobs.query_chunk import (
    Numbered,
    ProofTerms,
    ProvenEvent,
    QueryTerms,
    is_drawn,
    look,
    prove,
)
from spark_jobs.query_nodes import Place, Upper
from spark_jobs.query_plan import (
    ChunkFacts,
    ChunkResult,
    ChunkTask,
    Grouped,
    QueryRefused,
    QuestionTally,
    StreamPlan,
    TakenRows,
)
from veen.errors import Untrusted

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.core.broadcast import Broadcast

T = TypeVar("T")
PARTITION_ROWS: Final = 50_000
"""Rows that are sorted together, and that are in the driver's memory at once."""
_TASKS_PER_CORE: Final = 4
"""More than one, so that a slow task does not delay the others."""


class StreamFindings(NamedTuple):
    """A stream whose root was verified: its nodes for proofs, and the counts of each question."""

    stream: str
    size: int
    upper: Mapping[Place, bytes]
    spans: Mapping[int, StreamSpan]
    unread: Mapping[int, int]
    matched: Mapping[int, int]


def findings(plan: StreamPlan, facts: Mapping[int, ChunkFacts]) -> StreamFindings:
    """Verify that the chunks follow each other and lead to the root of the checkpoint."""
    chunks = [facts[piece.number] for piece in plan.pieces]
    upper = _reached(plan, facts)
    spans, unread, matched = {}, {}, {}
    start = plan.peaks.size + 1
    for question in plan.questions:
        tally = _total([chunk.tallies[question] for chunk in chunks])
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
        raise _untrusted(
            plan, f"expected chunks up to {plan.end.last_seq}, got them up to {upper.peaks.size}"
        )
    if upper.peaks.size and upper.peaks.root() != plan.end.mmr_root:
        raise _untrusted(plan, "its chunks do not give the root of the checkpoint")
    return upper


def _verify_times(plan: StreamPlan, facts: Mapping[int, ChunkFacts]) -> None:
    """The entries that were read must show that the span is within them: manifests are not
    signed."""
    last_ts = 0
    for piece in plan.to_read:
        chunk_facts = facts[piece.number]
        if chunk_facts.first_ts < last_ts:
            raise _untrusted(plan, f"hub times decrease at the start of {piece.chunk.file}")
        last_ts = chunk_facts.last_ts
    begins = plan.peaks.size and facts[plan.pieces[0].number].first_ts >= plan.span.first
    ends = plan.bridges and facts[plan.pieces[-1].number].last_ts <= plan.span.last
    if begins or ends:
        raise _untrusted(plan, "the times of its manifest differ from those of its chunks")


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
    return Untrusted(
        f"the archive of {plan.stream} does not match the checkpoint: {why}; run verify_log"
    )


class Shares(Generic[T]):
    """Items in the order of their questions; each question is requested once, in that order."""

    def __init__(self, items: Iterator[T], question_of: Callable[[T], int]) -> None:
        self._items = items
        self._question_of = question_of
        self._next = next(items, None)

    def of(self, question: int) -> Iterator[T]:
        while (item := self._next) is not None and self._question_of(item) == question:
            yield item
            self._next = next(self._items, None)


class ArchiveReading:
    """A pass over the archive, whose results are held on the executors' disks meanwhile."""

    def __init__(
        self,
        spark: SparkContext,
        terms: QueryTerms,
        plan: Sequence[StreamPlan],
        partitions: int,
        partition_rows: int = PARTITION_ROWS,
    ) -> None:
        self.terms = terms
        self._partition_rows = partition_rows
        self._spark = spark
        self._plan = plan
        pieces = [piece for stream_plan in plan for piece in stream_plan.to_read]
        slices = min(len(pieces), partitions or _TASKS_PER_CORE * spark.defaultParallelism)
        self._sent = spark.broadcast(terms)
        results = spark.parallelize(pieces, max(1, slices)).flatMap(partial(_look, self._sent))
        self._results: RDD[ChunkResult] = results.persist(StorageLevel.DISK_ONLY)

    def __enter__(self) -> Gathered:
        try:
            facts = _facts(self._results)
            streams = [findings(stream_plan, facts) for stream_plan in self._plan]
        except BaseException:
            self.__exit__()
            raise
        groups = sum(fact.groups for fact in facts.values())
        return Gathered(
            self._spark, self._sent, self._results, streams, groups, self._partition_rows
        )

    def __exit__(self, *_: object) -> None:
        self._results.unpersist()
        self._sent.unpersist()


class Gathered:
    """The results of all chunks, verified against the checkpoint."""

    def __init__(
        self,
        spark: SparkContext,
        sent: Broadcast[QueryTerms],
        results: RDD[ChunkResult],
        streams: Sequence[StreamFindings],
        groups: int,
        partition_rows: int,
    ) -> None:
        self.streams = streams
        self._partition_rows = partition_rows
        self._sent = sent
        self._results = results
        self._groups = groups
        self._questions = sent.value.questions
        numbers = range(len(self._questions))
        self.matched = [sum(stream.matched.get(at, 0) for stream in streams) for at in numbers]
        counts = [
            0 if question.aggregate is not None and question.evidence.mode == "none" else count
            for question, count in zip(self._questions, self.matched, strict=True)
        ]
        offsets = list(accumulate(counts, initial=0))
        taken = cast("RDD[TakenRows]", results.filter(partial(_is_a, TakenRows))).keyBy(
            attrgetter("key")
        )
        self._taken = taken.sortByKey(numPartitions=self._parts(offsets[-1])).values()
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
        """The merged partial results of each group, sorted by the bytes of its keys."""
        if all(question.aggregate is None for question in self._questions):
            return Shares(iter(()), _group_question)
        parts = self._parts(self._groups)
        pairs: RDD[Any] = self._results.filter(partial(_is_a, Grouped)).map(tuple)
        merged: RDD[Any] = pairs.reduceByKey(merge_cells, parts)
        merged = merged.sortByKey(numPartitions=parts)
        return Shares((Grouped(*pair) for pair in merged.toLocalIterator()), _group_question)

    def proven(self) -> Shares[ProvenEvent]:
        if all(question.evidence.mode == "none" for question in self._questions):
            return Shares(iter(()), attrgetter("question"))
        numbered = self._taken.zipWithIndex().map(partial(_numbered, self._proofs))
        sampled = numbered.filter(partial(_is_drawn, self._sent))
        proofs = sampled.map(partial(_prove, self._sent, self._proofs))
        return Shares(_raise_refused(proofs.toLocalIterator()), attrgetter("question"))

    def _parts(self, count: int) -> int:
        return 1 + count // self._partition_rows


def _facts(results: RDD[ChunkResult]) -> dict[int, ChunkFacts]:
    reports = results.filter(partial(_is_a, (ChunkFacts, QueryRefused))).collect()
    refused = sorted(report.detail for report in reports if isinstance(report, QueryRefused))
    if refused:
        raise Untrusted(refused[0])
    return {report.number: report for report in reports if isinstance(report, ChunkFacts)}


def _raise_refused(outcomes: Iterator[ProvenEvent | QueryRefused]) -> Iterator[ProvenEvent]:
    for outcome in outcomes:
        if isinstance(outcome, QueryRefused):
            raise Untrusted(outcome.detail)
        yield outcome


def _look(sent: Broadcast[QueryTerms], piece: ChunkTask) -> list[ChunkResult]:
    return look(sent.value, piece)


def _numbered(sent: Broadcast[ProofTerms], pair: tuple[TakenRows, int]) -> Numbered:
    return sent.value.numbered(*pair)


def _is_drawn(sent: Broadcast[QueryTerms], numbered: Numbered) -> bool:
    return is_drawn(sent.value, numbered)


def _prove(
    sent: Broadcast[QueryTerms], proofs: Broadcast[ProofTerms], numbered: Numbered
) -> ProvenEvent | QueryRefused:
    return prove(sent.value, proofs.value, numbered)


def _is_a(kind: type | tuple[type, ...], result: ChunkResult) -> bool:
    return isinstance(result, kind)


def _has_row(rows: TakenRows) -> bool:
    return rows.row is not None


def _without_witness(rows: TakenRows) -> TakenRows:
    return rows._replace(shown=None)


def _question_of(rows: TakenRows) -> int:
    return rows.key.question


def _group_question(grouped: Grouped) -> int:
    return grouped.group[0]
