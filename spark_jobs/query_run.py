"""Queries answered on Spark: chunks are read once for all of them, and each gets its own files.

What a query means is decided by ``recorder.query``; here it is only brought what it asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from recorder.archive.store import HubArchive
from recorder.query import aggregate as aggregates
from recorder.query.descriptor import Descriptor
from recorder.query.span import searched
from spark_jobs import event_work
from spark_jobs.query_chunk import Terms, reader_scope
from spark_jobs.query_found import Grouped
from spark_jobs.query_plan import plans
from spark_jobs.query_reading import Reading
from spark_jobs.query_result import ResultDraft
from spark_jobs.store_door import StoreDoor
from veen import canonical_json
from veen.recorder_checkpoint import RecorderCheckpoint

if TYPE_CHECKING:
    from pyspark import SparkContext


class Question(NamedTuple):
    descriptor: Descriptor
    result_id: str
    out: Path


@dataclass(frozen=True, slots=True)
class Site:
    """Where every host finds the archive and the reader's keys."""

    door: StoreDoor
    hub_id: bytes
    reader: event_work.Reader


def answer(
    spark: SparkContext,
    site: Site,
    checkpoint: RecorderCheckpoint,
    questions: Sequence[Question],
    partitions: int = 0,
) -> None:
    """Leave the files of every question, or raise and leave those of none.

    Raises NotInArchive where the archive ends before the checkpoint, and Untrusted where it is not
    what the hub has signed.
    """
    archive = HubArchive(site.door.to_read(), site.hub_id)
    manifest = archive.latest()
    terms = Terms(
        door=site.door,
        hub=archive.identity(manifest),
        checkpoint=checkpoint,
        reader=site.reader,
        reader_scope=reader_scope(site.reader.keys()),
        questions=tuple(one.descriptor for one in questions),
    )
    checkpoint.verify(terms.hub)
    found = plans(archive, manifest, checkpoint, terms.questions)
    drafts = [ResultDraft(one.out) for one in questions]
    try:
        _write(Reading(spark, terms, found, partitions), questions, drafts)
    except BaseException:
        for draft in drafts:
            draft.abandon()
        raise
    for draft in drafts:
        draft.release()


def _write(run: Reading, questions: Sequence[Question], drafts: Sequence[ResultDraft]) -> None:
    with run as done:
        rows, groups, proven = done.rows(), done.groups(), done.proven()
        for number, (question, draft) in enumerate(zip(questions, drafts, strict=True)):
            asked = question.descriptor
            if asked.aggregate is None:
                hashed = draft.write_rows(cast("bytes", one.row) for one in rows.of(number))
            else:
                hashed = draft.write_rows(_group_rows(asked, groups.of(number)))
            evidence = draft.write_witnesses(asked, question.result_id, proven.of(number))
            own = [one for one in done.streams if number in one.spans]
            spans = {one.stream: one.spans[number] for one in own}
            unread = {one.stream: one.unread[number] for one in own}
            told = searched(asked, run.terms.checkpoint, spans, unread)
            draft.write_parts(hashed, done.matched[number], evidence, told)


def _group_rows(question: Descriptor, groups: Iterator[Grouped]) -> Iterator[bytes]:
    assert question.aggregate is not None  # noqa: S101 - for the type checker
    is_empty = True
    for one in groups:
        is_empty = False
        for row in aggregates.rows(question.aggregate, {one.group[1]: one.cells}):
            yield canonical_json.encode(row)
    if is_empty:
        yield from map(canonical_json.encode, aggregates.rows(question.aggregate, {}))
