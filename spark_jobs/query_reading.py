"""One reading of an archive as Spark tasks, and what it found, in the order of what is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark import StorageLevel

from recorder.query import aggregate as aggregates
from spark_jobs.query_chunk import Terms, look
from spark_jobs.query_findings import StreamFindings, findings
from spark_jobs.query_found import Facts, Found, Grouped, Refused, Taken
from spark_jobs.query_plan import Piece, StreamPlan
from spark_jobs.query_shares import Shares
from spark_jobs.query_witness import Numbered, ProofTerms, Proven, is_drawn, prove
from veen.errors import Untrusted

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.core.broadcast import Broadcast

_SORTED: Final = 50_000
"""How much of a result is sorted together, and is in the driver's memory at once."""
_EACH: Final = 4
"""Tasks for each core, so that a slow one does not hold up the others."""


class Reading:
    """One reading of the archive, whose findings are kept on the executors' disks meanwhile."""

    def __init__(
        self, spark: SparkContext, terms: Terms, plan: Sequence[StreamPlan], partitions: int
    ) -> None:
        self.terms = terms
        self._spark = spark
        self._plan = plan
        pieces = [piece for one in plan for piece in one.to_read]
        slices = min(len(pieces), partitions or _EACH * spark.defaultParallelism)
        self._sent = spark.broadcast(terms)
        looked = spark.parallelize(pieces, max(1, slices)).flatMap(partial(_look, self._sent))
        self._found: RDD[Found] = looked.persist(StorageLevel.DISK_ONLY)

    def __enter__(self) -> Gathered:
        try:
            facts = _facts(self._found)
            streams = [findings(one, facts) for one in self._plan]
        except BaseException:
            self.__exit__()
            raise
        groups = sum(one.groups for one in facts.values())
        return Gathered(self._spark, self._sent, self._found, streams, groups)

    def __exit__(self, *_: object) -> None:
        self._found.unpersist()
        self._sent.unpersist()


class Gathered:
    """The findings of all chunks, once they were seen to be what the checkpoint speaks of."""

    def __init__(
        self,
        spark: SparkContext,
        sent: Broadcast[Terms],
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
        self.matched = [sum(one.matched.get(at, 0) for one in streams) for at in numbers]
        counts = [
            0 if one.aggregate is not None and one.evidence.mode == "none" else count
            for one, count in zip(self._questions, self.matched, strict=True)
        ]
        offsets = list(accumulate(counts, initial=0))
        taken = cast("RDD[Taken]", found.filter(partial(_is_a, Taken))).keyBy(attrgetter("key"))
        self._taken = taken.sortByKey(numPartitions=_parts(offsets[-1])).values()
        self._proofs = spark.broadcast(
            ProofTerms(
                {one.stream: one.upper for one in streams},
                {one.stream: one.size for one in streams},
                offsets,
            )
        )

    def rows(self) -> Shares[Taken]:
        if all(one.aggregate is not None for one in self._questions):
            return Shares(iter(()), _question_of)
        plain = self._taken.filter(_has_row).map(_without_witness)
        return Shares(plain.toLocalIterator(), _question_of)

    def groups(self) -> Shares[Grouped]:
        """What all chunks add to each group, by the bytes of its keys."""
        if all(one.aggregate is None for one in self._questions):
            return Shares(iter(()), _group_question)
        parts = _parts(self._groups)
        pairs: RDD[Any] = self._found.filter(partial(_is_a, Grouped)).map(tuple)
        merged: RDD[Any] = pairs.reduceByKey(aggregates.merge, parts)
        merged = merged.sortByKey(numPartitions=parts)
        return Shares((Grouped(*one) for one in merged.toLocalIterator()), _group_question)

    def proven(self) -> Shares[Proven]:
        if all(one.evidence.mode == "none" for one in self._questions):
            return Shares(iter(()), attrgetter("question"))
        numbered = self._taken.zipWithIndex().map(partial(_numbered, self._proofs))
        drawn = numbered.filter(partial(_is_drawn, self._sent))
        shown = drawn.map(partial(_prove, self._sent, self._proofs))
        return Shares(_refusing(shown.toLocalIterator()), attrgetter("question"))


def _parts(count: int) -> int:
    return 1 + count // _SORTED


def _facts(found: RDD[Found]) -> dict[int, Facts]:
    said = found.filter(partial(_is_a, (Facts, Refused))).collect()
    refused = sorted(one.told for one in said if isinstance(one, Refused))
    if refused:
        raise Untrusted(refused[0])
    return {one.number: one for one in said if isinstance(one, Facts)}


def _refusing(shown: Iterator[Proven | Refused]) -> Iterator[Proven]:
    for one in shown:
        if isinstance(one, Refused):
            raise Untrusted(one.told)
        yield one


def _look(sent: Broadcast[Terms], piece: Piece) -> list[Found]:
    return look(sent.value, piece)


def _numbered(sent: Broadcast[ProofTerms], one: tuple[Taken, int]) -> Numbered:
    return sent.value.numbered(*one)


def _is_drawn(sent: Broadcast[Terms], one: Numbered) -> bool:
    return is_drawn(sent.value, one)


def _prove(
    sent: Broadcast[Terms], proofs: Broadcast[ProofTerms], one: Numbered
) -> Proven | Refused:
    return prove(sent.value, proofs.value, one)


def _is_a(kind: type | tuple[type, ...], one: Found) -> bool:
    return isinstance(one, kind)


def _has_row(one: Taken) -> bool:
    return one.row is not None


def _without_witness(one: Taken) -> Taken:
    return one._replace(shown=None)


def _question_of(one: Taken) -> int:
    return one.key.question


def _group_question(one: Grouped) -> int:
    return one.group[0]
