"""The data source ``veen_log``: the entries of an archived hub as a table, a chunk a partition.

    spark.dataSource.register(VeenLog)
    spark.read.format("veen_log").options(store="s3://bucket", hub_id="…").load()

Conditions on label, stream_seq and hub_ts decide which chunks are opened. Frames are verified,
signatures and roots are not: that is what verify_log is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from recorder.archive.store import HubArchive
from spark_jobs.chunk_window import WINDOW, ArchivedChunk, PlacedEntry, chunk_of, windows
from spark_jobs.query_plan import LogBounds, LogSpan
from veen.errors import VeenError
from veen.limits import Limits
from veen.objects.store import StoreRef, store_ref

ARROW: Final = pa.schema(
    [
        ("label", pa.binary()),
        ("stream_seq", pa.int64()),
        ("hub_ts", pa.int64()),
        ("msg_ver", pa.int32()),
        ("profile_id", pa.binary()),
        ("client_id", pa.binary()),
        ("client_seq", pa.int64()),
        ("prev_ack", pa.int64()),
        ("auth_ref", pa.binary()),
        ("ct_hash", pa.binary()),
        ("ciphertext", pa.binary()),
        ("sig", pa.binary()),
        ("receipt_ver", pa.int32()),
        ("leaf_hash", pa.binary()),
        ("mmr_root", pa.binary()),
        ("hub_sig", pa.binary()),
        ("msg", pa.binary()),
        ("receipt", pa.binary()),
        ("chunk", pa.string()),
        ("offset", pa.int64()),
    ]
)
_DDL: Final = {
    pa.binary(): "binary",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.string(): "string",
}


def row(placed: PlacedEntry, chunk: str) -> tuple[Any, ...]:
    """An entry, in the order of the columns."""
    msg, receipt = placed.framed.msg, placed.framed.receipt
    return (
        receipt.label, receipt.stream_seq, receipt.hub_ts,
        msg.ver, msg.profile_id, msg.client_id, msg.client_seq, msg.prev_ack, msg.auth_ref,
        msg.ct_hash, msg.ciphertext, msg.sig,
        receipt.ver, receipt.leaf_hash, receipt.mmr_root, receipt.hub_sig,
        msg.encode(), receipt.encode(), chunk, placed.at,
    )  # fmt: skip


def batch(entries: Sequence[PlacedEntry], chunk: str) -> pa.RecordBatch:
    columns = zip(*(row(entry, chunk) for entry in entries), strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, ARROW.types, strict=True)]
    return pa.record_batch(arrays, schema=ARROW)


def narrowed(bounds: LogBounds, condition: Filter) -> LogBounds:
    """The bounds under a further condition; one that does not concern them changes nothing."""
    match condition:
        case EqualTo(("label",), bytes() | bytearray() as value) | EqualNullSafe(
            ("label",), bytes() | bytearray() as value
        ):
            return bounds.with_labels([bytes(value)])
        case In(("label",), values):
            return bounds.with_labels([bytes(value) for value in values if value is not None])
    name = getattr(condition, "attribute", ())
    if name == ("stream_seq",):
        return replace(bounds, stream_seq=_cut(bounds.stream_seq, condition))
    if name == ("hub_ts",):
        return replace(bounds, hub_ts=_cut(bounds.hub_ts, condition))
    return bounds


def _cut(span: LogSpan, condition: Filter) -> LogSpan:
    match condition:
        case EqualTo(_, int() as value) | EqualNullSafe(_, int() as value):
            return span.within(value, value)
        case GreaterThan(_, int() as value):
            return span.within(first=value + 1)
        case GreaterThanOrEqual(_, int() as value):
            return span.within(first=value)
        case LessThan(_, int() as value):
            return span.within(last=value - 1)
        case LessThanOrEqual(_, int() as value):
            return span.within(last=value)
        case In(_, values) if values and all(isinstance(value, int) for value in values):
            return span.within(min(values), max(values))
    return span


@dataclass
class ChunkPartition(InputPartition):
    """A chunk as a partition."""

    chunk: ArchivedChunk


class SparkLogReader(DataSourceReader):
    """Reads the chunks of an archive within bounds."""

    def __init__(self, services: StoreRef, hub_id: bytes, window: int) -> None:
        self._services = services
        self._hub_id = hub_id
        self._window = window
        self._bounds = LogBounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Select chunks; Spark still filters every row."""
        for condition in filters:
            self._bounds = narrowed(self._bounds, condition)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        archive = HubArchive(self._services.to_read(), self._hub_id)
        return [
            ChunkPartition(chunk_of(self._hub_id, label, segment))
            for label in map(archive.label_of, self._bounds.refs(archive.latest()))
            for segment in label.segments
            if not segment.is_pruned and self._bounds.needs(segment)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ChunkPartition):
            return
        objects, chunk = self._services.to_read().objects, partition.chunk
        for entries in windows(objects, chunk, Limits(), self._window):
            first = entries[0].framed.receipt
            if self._bounds.is_past(first.stream_seq, first.hub_ts):
                return
            yield batch(entries, chunk.file)


class VeenLog(DataSource):
    """The data source ``veen_log``."""

    @classmethod
    def name(cls) -> str:
        return "veen_log"

    def schema(self) -> str:
        return ", ".join(f"{field.name} {_DDL[field.type]}" for field in ARROW)

    def reader(self, schema: StructType) -> SparkLogReader:  # noqa: ARG002 - Spark's signature
        options: Mapping[str, str] = self.options
        if "store" not in options or "hub_id" not in options:
            raise VeenError("veen_log needs the options store and hub_id")
        window = int(options.get("window_bytes", WINDOW))
        return SparkLogReader(
            store_ref(options["store"], options), bytes.fromhex(options["hub_id"]), window
        )
