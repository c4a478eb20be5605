"""Answer a query from an archive, up to a recorder checkpoint (Query API 8).

    spark-submit spark_jobs/query_digest.py --descriptor FILE --result-id ID --checkpoint FILE
        --store s3://bucket/prefix --hub-id HEX --client DIR --out DIR

The rows, their hash and the evidence are the bytes that the inline engine gives. Ends with 0 when
the result is in its directory; with 3 when the archive is not what the hub has signed, with 4 when
it does not hold what is asked for. Then there is no result at all.

The files of a result, as the Query API takes them from a job: all of them, or none.

``rows.jsonl`` is canonical JSON, a row a line, in order. ``witnesses.cborseq`` holds a witness for
each verified event. ``digest-parts.json`` holds what the digest is made of.

Queries answered on Spark: chunks are read once for all of them, and each gets its own files.

What a query means is decided by ``recorder.query``; here it is only brought what it asks for.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, cast

from recorder.archive.store import HubArchive
from recorder.query.descriptor import Descriptor, JsonLimits, parse_json, read_descriptor
from recorder.query.digest import RowChain, RowsHash, Searched
from recorder.query.evidence import EvidenceSummary, evidence_hash
from recorder.query.execute import searched
from recorder.query.select import aggregate_rows
from spark_jobs.event_files import ReaderIdentity
from spark_jobs.query_chunk import Proven, QueryTerms, reader_scope
from spark_jobs.query_collect import ArchiveReading
from spark_jobs.query_plan import Grouped, plans
from veen.digest import h_blocks
from veen.errors import Malformed, Untrusted, VeenError
from veen.events import is_import
from veen.objects.store import OPTIONS, StoreRef, store_ref
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable
from veen.wire import canonical_json

if TYPE_CHECKING:
    from pyspark import SparkContext


OK, BROKEN, REFUSED = 0, 3, 4
_LIMITS: Final = JsonLimits(max_bytes=4 << 20)


class NotOnSpark(VeenError):
    """A query that only the index can answer."""


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        _run(asked)
    except (VeenError, OSError) as error:
        sys.stderr.write(f"query_digest: {error}\n")
        return BROKEN if isinstance(error, Untrusted | Malformed) else REFUSED
    sys.stdout.write(f"query_digest: the result is in {asked.out}\n")
    return OK


def _run(asked: argparse.Namespace) -> None:
    # A wrong call is told at once; both of these start Spark's Python.
    from spark_jobs.session import session  # noqa: PLC0415

    descriptor = read_descriptor(parse_json(asked.descriptor.read_bytes(), _LIMITS))
    imports = [item for item in descriptor.scope if is_import(item)]
    if imports:
        raise NotOnSpark(
            f"the scope has {imports[0]}: import streams are answered by the index alone, which "
            "knows where each bundle is complete; narrow the query, or raise row_budget"
        )
    checkpoint = RecorderCheckpoint.decode(asked.checkpoint.read_bytes())
    reader = ReaderIdentity(asked.client.absolute(), asked.passphrase_file)
    site = QuerySite(store_ref(asked.store, vars(asked)), asked.hub_id, reader)
    question = SparkQuestion(descriptor, asked.result_id, asked.out.absolute())
    with session("query_digest") as spark:
        answer(spark.sparkContext, site, checkpoint, [question], asked.partitions)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="query_digest", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--descriptor", type=Path, required=True, metavar="FILE", help="normalised")
    parser.add_argument("--result-id", required=True, metavar="ID")
    parser.add_argument(
        "--checkpoint", type=Path, required=True, metavar="FILE", help="of the recorder, in CBOR"
    )
    parser.add_argument("--store", required=True, metavar="URL", help="file:/// or s3://")
    parser.add_argument("--hub-id", required=True, type=bytes.fromhex, metavar="HEX")
    for name in OPTIONS:
        parser.add_argument(f"--{name}", help="of a store like S3")
    parser.add_argument(
        "--client", required=True, type=Path, metavar="DIR", help="who reads; on every host"
    )
    parser.add_argument(
        "--passphrase-file", type=Path, metavar="FILE", help="on every host; else $VEEN_PASSPHRASE"
    )
    parser.add_argument("--partitions", type=int, default=0, metavar="N", help="tasks at most")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())


ROWS, WITNESSES, PARTS = "rows.jsonl", "witnesses.cborseq", "digest-parts.json"


class ResultDraft:
    """A result beside its place; it is there once it is whole, on disk and released."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._draft = out.with_name(f".{out.name}.new")
        self.abandon()
        durable.make_directory(self._draft)

    def write_rows(self, rows: Iterable[bytes]) -> RowsHash:
        """Rows in canonical JSON, in their order."""
        chain = RowChain()
        with (self._draft / ROWS).open("wb") as file:
            hashed = h_blocks(chain.blocks(_through(file, rows)))
            _settle(file)
        return RowsHash(hashed.hex(), chain.count, chain.value.hex())

    def write_witnesses(
        self, descriptor: Descriptor, result_id: str, proven: Iterable[Proven]
    ) -> str:
        """The evidence_hash over events that were verified."""
        with (self._draft / WITNESSES).open("wb") as file:
            result = evidence_hash(descriptor, result_id, _lines(file, proven))
            _settle(file)
        return result

    def write_parts(
        self,
        rows: RowsHash,
        event_count: int,
        evidence_hash: str,
        searched: Iterable[Searched],
    ) -> None:
        parts = {
            "rows_hash": rows.rows_hash,
            "rows_chain": rows.chain,
            "row_count": rows.row_count,
            "event_count": event_count,
            "evidence_hash": evidence_hash,
            "searched": [item.document() for item in searched],
        }
        durable.write(self._draft / PARTS, canonical_json.encode(parts))
        durable.sync_directory(self._draft)

    def release(self) -> None:
        shutil.rmtree(self._out, ignore_errors=True)
        durable.rename(self._draft, self._out)

    def abandon(self) -> None:
        shutil.rmtree(self._draft, ignore_errors=True)


def _through(file: BinaryIO, rows: Iterable[bytes]) -> Iterator[bytes]:
    for row in rows:
        file.write(row + b"\n")
        yield row


def _lines(file: BinaryIO, proven: Iterable[Proven]) -> Iterator[EvidenceSummary]:
    for item in proven:
        file.write(item.witness)
        yield item.line


def _settle(file: BinaryIO) -> None:
    file.flush()
    durable.sync(file.fileno())


class SparkQuestion(NamedTuple):
    descriptor: Descriptor
    result_id: str
    out: Path


@dataclass(frozen=True, slots=True)
class QuerySite:
    """Where every host finds the archive and the reader's keys."""

    services: StoreRef
    hub_id: bytes
    reader: ReaderIdentity


def answer(
    spark: SparkContext,
    site: QuerySite,
    checkpoint: RecorderCheckpoint,
    questions: Sequence[SparkQuestion],
    partitions: int = 0,
) -> None:
    """Leave the files of every question, or raise and leave those of none.

    Raises NotInArchive where the archive ends before the checkpoint, and Untrusted where it is not
    what the hub has signed.
    """
    archive = HubArchive(site.services.to_read(), site.hub_id)
    manifest = archive.latest()
    terms = QueryTerms(
        services=site.services,
        hub=archive.identity(manifest),
        checkpoint=checkpoint,
        reader=site.reader,
        reader_scope=reader_scope(site.reader.keys()),
        questions=tuple(question.descriptor for question in questions),
    )
    checkpoint.verify(terms.hub)
    stream_plans = plans(archive, manifest, checkpoint, terms.questions)
    drafts = [ResultDraft(question.out) for question in questions]
    try:
        _write(ArchiveReading(spark, terms, stream_plans, partitions), questions, drafts)
    except BaseException:
        for draft in drafts:
            draft.abandon()
        raise
    for draft in drafts:
        draft.release()


def _write(
    run: ArchiveReading, questions: Sequence[SparkQuestion], drafts: Sequence[ResultDraft]
) -> None:
    with run as done:
        rows, groups, proven = done.rows(), done.groups(), done.proven()
        for number, (question, draft) in enumerate(zip(questions, drafts, strict=True)):
            asked = question.descriptor
            if asked.aggregate is None:
                hashed = draft.write_rows(cast("bytes", item.row) for item in rows.of(number))
            else:
                hashed = draft.write_rows(_group_rows(asked, groups.of(number)))
            evidence = draft.write_witnesses(asked, question.result_id, proven.of(number))
            own = [stream for stream in done.streams if number in stream.spans]
            spans = {item.stream: item.spans[number] for item in own}
            unread = {item.stream: item.unread[number] for item in own}
            searcheds = searched(asked, run.terms.checkpoint, spans, unread)
            draft.write_parts(hashed, done.matched[number], evidence, searcheds)


def _group_rows(question: Descriptor, groups: Iterator[Grouped]) -> Iterator[bytes]:
    assert question.aggregate is not None  # noqa: S101 - for the type checker
    is_empty = True
    for group in groups:
        is_empty = False
        for row in aggregate_rows(question.aggregate, {group.group[1]: group.cells}):
            yield canonical_json.encode(row)
    if is_empty:
        yield from map(canonical_json.encode, aggregate_rows(question.aggregate, {}))
