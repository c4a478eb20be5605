"""Decrypt an archived log into a table of Parquet files, one a chunk and day; only what is new.

    spark-submit spark_jobs/events_table.py --store s3://bucket --hub-id HEX \\
        --client DIR --passphrase-file FILE --plaintext-at-rest yes

Ends with 0 when every new chunk is in the table, with 3 when some were refused, with 4 when
nothing could be done.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from recorder.archive.store import HubArchive
from spark_jobs.audit_terms import AuditTerms, read_terms
from spark_jobs.chunk_window import chunk_of
from spark_jobs.event_manifest import EventChunk, EventTable
from spark_jobs.event_rows import Readership
from spark_jobs.event_work import Done, Reader, Terms, Work, write_one
from spark_jobs.known_streams import KnownStreams, learn_streams
from spark_jobs.store_door import StoreDoor, add_options, door_of
from veen.control import control_label
from veen.errors import VeenError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast

WAVE: Final = 1_024
OK, FAULTS, REFUSED = 0, 3, 4


class Outcome(NamedTuple):
    chunks: int
    rows: int
    opened: int
    pruned: int
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsJob:
    """Brings a table up to its archive."""

    door: StoreDoor
    hub_id: bytes
    table: str
    reader: Reader
    terms: AuditTerms

    def run(self, spark: SparkContext) -> Outcome:
        door = self.door.probed()
        store = door.to_put()
        table = EventTable(store, self.table, self.hub_id)
        streams = learn_streams(door, self.hub_id, self.terms)
        work, pruned = self._work(HubArchive(store, self.hub_id), streams, table)
        context = streams.context
        sent = spark.broadcast(
            Terms(
                door=door,
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
            found = spark.parallelize(wave, len(wave)).map(partial(_write, sent)).collect()
            table.commit(self.reader.name(), _by_label(found))
            done += found
        return _outcome(done, pruned)

    def _work(
        self, archive: HubArchive, streams: KnownStreams, table: EventTable
    ) -> tuple[list[Work], int]:
        """Chunks that are not in the table; and how many retention took before the archive."""
        known, found, pruned = table.known(self.reader.name()), [], 0
        for label in archive.labels(archive.latest()):
            if label.label == control_label(self.hub_id):
                continue
            pruned += sum(one.is_pruned for one in label.segments)
            found += [
                Work(chunk_of(self.hub_id, label, one), streams.of(label))
                for one in label.segments
                if not one.is_pruned and (label.label, one.start_seq) not in known
            ]
        return found, pruned


def _write(sent: Broadcast[Terms], work: Work) -> Done:
    return write_one(sent.value, work)


def _by_label(done: Iterable[Done]) -> dict[bytes, list[EventChunk]]:
    found: dict[bytes, list[EventChunk]] = {}
    for one in done:
        if one.events is not None:
            found.setdefault(one.chunk.name.label, []).append(one.events)
    return found


def _outcome(done: Sequence[Done], pruned: int) -> Outcome:
    events = [one.events for one in done if one.events is not None]
    return Outcome(
        chunks=len(events),
        rows=sum(one.rows for one in events),
        opened=sum(one.opened for one in events),
        pruned=pruned,
        refused=tuple(one.refused for one in done if one.events is None),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    if asked.plaintext_at_rest != "yes":
        return _say(
            REFUSED,
            "the table holds events in the clear for whoever can read the store, for as long as "
            "it keeps them; say --plaintext-at-rest yes if that is what you want",
        )
    try:
        found = _run(asked)
    except VeenError as error:
        return _say(REFUSED, str(error))
    for why in found.refused:
        _say(FAULTS, f"refused: {why}")
    _say(
        OK,
        f"{found.chunks} new chunks, {found.rows} events, {found.rows - found.opened} of them "
        f"not opened, {found.pruned} chunks pruned before they were archived",
    )
    return FAULTS if found.refused else OK


def _say(code: int, what: str) -> int:
    (sys.stderr if code else sys.stdout).write(f"events_table: {what}\n")
    return code


def _run(asked: argparse.Namespace) -> Outcome:
    from spark_jobs.session import session  # noqa: PLC0415 - refusals need no Spark

    job = EventsJob(
        door=door_of(asked.store, vars(asked)),
        hub_id=asked.hub_id,
        table=asked.table,
        reader=Reader(asked.client.absolute(), asked.passphrase_file),
        terms=read_terms(asked.terms),
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
