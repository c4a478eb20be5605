"""Answer a query from an archive, up to a recorder checkpoint (Query API 8).

    spark-submit spark_jobs/query_digest.py --descriptor FILE --result-id ID --checkpoint FILE
        --store s3://bucket/prefix --hub-id HEX --client DIR --out DIR

The rows, their hash and the evidence are the bytes that the inline engine gives. Ends with 0 when
the result is in its directory; with 3 when the archive is not what the hub has signed, with 4 when
it does not hold what is asked for. Then there is no result at all.

The result is all of its files, or none: ``rows.jsonl`` is canonical JSON, a row a line, in order;
``witnesses.cborseq`` holds a witness for each verified event; ``digest-parts.json`` holds the
fields of the digest. Several queries can share one pass over the chunks. The semantics of a query
are defined by ``recorder.query``.
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
from spark_jobs.query_chunk import ProvenEvent, QueryTerms, reader_scope
from spark_jobs.query_collect import PARTITION_ROWS, ArchiveReading
from spark_jobs.query_plan import Grouped, plans
from spark_jobs.session import session
from veen.digest import h_blocks
from veen.errors import Malformed, Untrusted, VeenError
from veen.events import is_import
from veen.objects.store import StoreRef, add_options, store_ref
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable
from veen.wire import canonical_json

if TYPE_CHECKING:
    from pyspark import SparkContext


OK, BROKEN, REFUSED = 0, 3, 4
_LIMITS: Final = JsonLimits(max_bytes=4 << 20)
ROWS, WITNESSES, PARTS = "rows.jsonl", "witnesses.cborseq", "digest-parts.json"


class NotOnSpark(VeenError):
    """A query that only the index can answer."""


class ResultDraft:
    """A result in a temporary directory, renamed once it is complete and synced."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._temporary = out.with_name(f".{out.name}.new")
        self.abandon()
        durable.make_directory(self._temporary)

    def write_rows(self, rows: Iterable[bytes]) -> RowsHash:
        """Write rows in canonical JSON, in order."""
        chain = RowChain()
        with (self._temporary / ROWS).open("wb") as file:
            hashed = h_blocks(chain.blocks(_through(file, rows)))
            _sync(file)
        return RowsHash(hashed.hex(), chain.count, chain.value.hex())

    def write_witnesses(
        self, descriptor: Descriptor, result_id: str, proven: Iterable[ProvenEvent]
    ) -> str:
        """Write witnesses of verified events; return the evidence_hash."""
        with (self._temporary / WITNESSES).open("wb") as file:
            hash_ = evidence_hash(descriptor, result_id, _lines(file, proven))
            _sync(file)
        return hash_

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
            "searched": [range_.document() for range_ in searched],
        }
        durable.write(self._temporary / PARTS, canonical_json.encode(parts))
        durable.sync_directory(self._temporary)

    def release(self) -> None:
        shutil.rmtree(self._out, ignore_errors=True)
        durable.rename(self._temporary, self._out)

    def abandon(self) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)


def _through(file: BinaryIO, rows: Iterable[bytes]) -> Iterator[bytes]:
    for row in rows:
        file.write(row + b"\n")
        yield row


def _lines(file: BinaryIO, proven: Iterable[ProvenEvent]) -> Iterator[EvidenceSummary]:
    for event in proven:
        file.write(event.witness)
        yield event.line


def _sync(file: BinaryIO) -> None:
    file.flush()
    durable.sync(file.fileno())


class SparkQuestion(NamedTuple):
    """A query with the directory of its result."""

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
    partition_rows: int = PARTITION_ROWS,
) -> None:
    """Write the files of every question, or raise and leave none.

    The archive is read in at most ``partitions`` tasks; rows and groups are sorted in partitions of
    about ``partition_rows``, each of which an executor sorts in its memory.

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
        reading = ArchiveReading(spark, terms, stream_plans, partitions, partition_rows)
        _write(reading, questions, drafts)
    except BaseException:
        for draft in drafts:
            draft.abandon()
        raise
    for draft in drafts:
        draft.release()


def _write(
    reading: ArchiveReading, questions: Sequence[SparkQuestion], drafts: Sequence[ResultDraft]
) -> None:
    with reading as gathered:
        rows, groups, proven = gathered.rows(), gathered.groups(), gathered.proven()
        for number, (question, draft) in enumerate(zip(questions, drafts, strict=True)):
            descriptor = question.descriptor
            if descriptor.aggregate is None:
                hashed = draft.write_rows(cast("bytes", taken.row) for taken in rows.of(number))
            else:
                hashed = draft.write_rows(_group_rows(descriptor, groups.of(number)))
            evidence = draft.write_witnesses(descriptor, question.result_id, proven.of(number))
            own = [stream for stream in gathered.streams if number in stream.spans]
            spans = {stream.stream: stream.spans[number] for stream in own}
            unread = {stream.stream: stream.unread[number] for stream in own}
            ranges = searched(descriptor, reading.terms.checkpoint, spans, unread)
            draft.write_parts(hashed, gathered.matched[number], evidence, ranges)


def _group_rows(question: Descriptor, groups: Iterator[Grouped]) -> Iterator[bytes]:
    assert question.aggregate is not None  # noqa: S101 - for the type checker
    is_empty = True
    for group in groups:
        is_empty = False
        for row in aggregate_rows(question.aggregate, {group.group[1]: group.cells}):
            yield canonical_json.encode(row)
    if is_empty:
        yield from map(canonical_json.encode, aggregate_rows(question.aggregate, {}))


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        _run(args)
    except (VeenError, OSError) as error:
        sys.stderr.write(f"query_digest: {error}\n")
        return BROKEN if isinstance(error, Untrusted | Malformed) else REFUSED
    sys.stdout.write(f"query_digest: the result is in {args.out}\n")
    return OK


def _run(args: argparse.Namespace) -> None:
    descriptor = read_descriptor(parse_json(args.descriptor.read_bytes(), _LIMITS))
    imports = [stream for stream in descriptor.scope if is_import(stream)]
    if imports:
        raise NotOnSpark(
            f"the scope has {imports[0]}: import streams are answered by the index alone, which "
            "knows where each bundle is complete; narrow the query, or raise row_budget"
        )
    checkpoint = RecorderCheckpoint.decode(args.checkpoint.read_bytes())
    reader = ReaderIdentity(args.client.absolute(), args.passphrase_file)
    site = QuerySite(store_ref(args.store, vars(args)), args.hub_id, reader)
    question = SparkQuestion(descriptor, args.result_id, args.out.absolute())
    with session("query_digest") as spark:
        answer(spark.sparkContext, site, checkpoint, [question], args.partitions)


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
    add_options(parser)
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
