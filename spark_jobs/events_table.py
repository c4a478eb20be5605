r"""Decrypt an archived log into a table of Parquet files, one a chunk and day; only what is new.

    spark-submit spark_jobs/events_table.py --store s3://bucket --hub-id HEX \
        --client DIR --passphrase-file FILE --plaintext-at-rest yes

Ends with 0 when every new chunk is in the table, with 3 when some were refused, with 4 when
nothing could be done. The stream of each label is learnt from the hub's control log.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from recorder.archive.audit import AuditTerms, read_terms
from recorder.archive.log_files import in_archive
from recorder.archive.manifest import LabelManifest
from recorder.archive.store import HubArchive
from spark_jobs.chunk_window import chunk_of
from spark_jobs.event_files import (
    Done,
    EventChunk,
    EventTable,
    EventTerms,
    EventWork,
    LabelledStream,
    ReaderIdentity,
    Readership,
    write_one,
)
from spark_jobs.session import session
from veen.audit.context import Context, Depth, Stock
from veen.audit.engine import AuditedLog, audit_log, in_order
from veen.audit.trust import TrustCheck
from veen.errors import Untrusted, VeenError
from veen.label import Profile
from veen.log.entry import StreamRecord, control_label
from veen.objects.store import StoreRef, add_options, store_ref

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast

WAVE: Final = 1_024
OK, FAULTS, REFUSED = 0, 3, 4


@dataclass(frozen=True, slots=True)
class LoggedStreams:
    """The streams that the control log and the terms name."""

    context: Context
    names: Mapping[bytes, str]

    def of(self, label: LabelManifest) -> LabelledStream:
        origin = self.context.origin(label.label, label.parts[0].first_ts)
        if origin is None:
            return LabelledStream(None, None)
        stream_id = origin.labels.stream_id
        return LabelledStream(self.names.get(stream_id), stream_id)

    def profiles(self) -> dict[bytes, Profile]:
        known = [*self.context.streams.fixed.values(), *self.context.streams.rolling]
        learnt = {origin.labels.profile.profile_id(): origin.labels.profile for origin in known}
        return {**self.context.profiles, **learnt}


def learn_streams(services: StoreRef, hub_id: bytes, terms: AuditTerms) -> LoggedStreams:
    """Audit the control label, which names the streams; a faulty one is refused."""
    inventory, trust = in_archive(services, hub_id), TrustCheck()
    context = terms.context(trust.read_hub(inventory.files.read), Depth.FULL)
    log = inventory.log()
    control = control_label(hub_id)
    control_only = Stock({control: log.inventory.of(control)})
    acknowledged = {label: upto for label, upto in log.acknowledged.items() if label == control}
    (findings,) = audit_log(
        AuditedLog(inventory=control_only, read=log.read, acknowledged=acknowledged),
        context,
        in_order(log.read),
    ).labels
    if trust.faults or findings.faults:
        first = (*trust.faults, *findings.faults)[0]
        raise Untrusted(f"{first.file} at byte {first.offset}: {first.what}; run verify_log")
    records = [
        *terms.streams,
        *(stream for logged in findings.control_records for stream in logged.record.streams()),
    ]
    return LoggedStreams(
        context.with_control_records(findings.control_records, is_whole=True), _names(records)
    )


def _names(records: Iterable[StreamRecord]) -> dict[bytes, str]:
    names: dict[bytes, str] = {}
    for record in records:
        if not record.is_nameless():
            names.setdefault(record.stream_id(), record.name)
    return names


class TableOutcome(NamedTuple):
    chunks: int
    rows: int
    opened: int
    pruned: int
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsJob:
    """Brings a table up to date with its archive."""

    services: StoreRef
    hub_id: bytes
    table: str
    reader: ReaderIdentity
    terms: AuditTerms

    def run(self, spark: SparkContext) -> TableOutcome:
        services = self.services.probed()
        store = services.to_put()
        table = EventTable(store, self.table, self.hub_id)
        streams = learn_streams(services, self.hub_id, self.terms)
        work, pruned = self._work(HubArchive(store, self.hub_id), streams, table)
        context = streams.context
        sent = spark.broadcast(
            EventTerms(
                services=services,
                prefix=table.prefix,
                readership=Readership(
                    hub=context.hub, limits=context.limits, profiles=streams.profiles()
                ),
                reader=self.reader,
            )
        )
        done: list[Done] = []
        for start in range(0, len(work), WAVE):
            wave = work[start : start + WAVE]
            results = spark.parallelize(wave, len(wave)).map(partial(_write, sent)).collect()
            table.commit(self.reader.name(), _by_label(results))
            done += results
        return _outcome(done, pruned)

    def _work(
        self, archive: HubArchive, streams: LoggedStreams, table: EventTable
    ) -> tuple[list[EventWork], int]:
        """The chunks that are not in the table, and how many were pruned before they were
        archived."""
        known, work, pruned = table.known(self.reader.name()), [], 0
        for label in archive.labels(archive.latest()):
            if label.label == control_label(self.hub_id):
                continue
            pruned += sum(segment.is_pruned for segment in label.segments)
            work += [
                EventWork(chunk_of(self.hub_id, label, segment), streams.of(label))
                for segment in label.segments
                if not segment.is_pruned and (label.label, segment.start_seq) not in known
            ]
        return work, pruned


def _write(sent: Broadcast[EventTerms], work: EventWork) -> Done:
    return write_one(sent.value, work)


def _by_label(done: Iterable[Done]) -> dict[bytes, list[EventChunk]]:
    chunks: dict[bytes, list[EventChunk]] = {}
    for outcome in done:
        if outcome.events is not None:
            chunks.setdefault(outcome.chunk.name.label, []).append(outcome.events)
    return chunks


def _outcome(done: Sequence[Done], pruned: int) -> TableOutcome:
    events = [outcome.events for outcome in done if outcome.events is not None]
    return TableOutcome(
        chunks=len(events),
        rows=sum(event.rows for event in events),
        opened=sum(event.opened for event in events),
        pruned=pruned,
        refused=tuple(outcome.refused for outcome in done if outcome.events is None),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    if args.plaintext_at_rest != "yes":
        return _say(
            REFUSED,
            "the table holds events in the clear for whoever can read the store, for as long as "
            "it keeps them; say --plaintext-at-rest yes if that is what you want",
        )
    try:
        outcome = _run(args)
    except VeenError as error:
        return _say(REFUSED, str(error))
    for why in outcome.refused:
        _say(FAULTS, f"refused: {why}")
    _say(
        OK,
        f"{outcome.chunks} new chunks, {outcome.rows} events, "
        f"{outcome.rows - outcome.opened} of them not opened, "
        f"{outcome.pruned} chunks pruned before they were archived",
    )
    return FAULTS if outcome.refused else OK


def _say(code: int, what: str) -> int:
    (sys.stderr if code else sys.stdout).write(f"events_table: {what}\n")
    return code


def _run(args: argparse.Namespace) -> TableOutcome:
    job = EventsJob(
        services=store_ref(args.store, vars(args)),
        hub_id=args.hub_id,
        table=args.table,
        reader=ReaderIdentity(args.client.absolute(), args.passphrase_file),
        terms=read_terms(args.terms),
    )
    with session("events_table") as spark:
        return job.run(spark.sparkContext)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="events_table", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--store", required=True, metavar="URL", help="file:/// or s3://")
    parser.add_argument("--hub-id", required=True, type=bytes.fromhex, metavar="HEX")
    add_options(parser)
    parser.add_argument("--table", default="events", metavar="NAME", help="in the same store")
    parser.add_argument("--terms", type=Path, metavar="FILE", help="limits and streams of the hub")
    parser.add_argument(
        "--client", required=True, type=Path, metavar="DIR", help="who reads; on every host"
    )
    parser.add_argument(
        "--passphrase-file", type=Path, metavar="FILE", help="on every host; else $VEEN_PASSPHRASE"
    )
    parser.add_argument("--plaintext-at-rest", choices=["yes", "no"], default="no")
    return parser


if __name__ == "__main__":
    sys.exit(main())
