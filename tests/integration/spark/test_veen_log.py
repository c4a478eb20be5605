"""The log as a table: every field of every sealed entry, and no chunk opened that is not needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, LessThanOrEqual, Not

from spark_jobs.chunk_window import WINDOW, chunk_of, windows
from spark_jobs.log_source import ARROW, ChunkPartition, SparkLogReader, VeenLog, batch, narrowed
from spark_jobs.query_plan import LogBounds, LogSpan
from veen.errors import Untrusted
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import read_entries
from veen.objects.port import S3Settings

LABEL, OTHER = b"l" * 32, b"o" * 32


def table(spark: SparkSession, archive: Any) -> DataFrame:
    spark.dataSource.register(VeenLog)
    options = {"store": archive.url, "hub_id": archive.hub_id.hex()}
    if isinstance(archive.settings, S3Settings):
        options |= {"endpoint": archive.settings.endpoint, "addressing": "path"}
    return spark.read.format("veen_log").options(**options).load()


def segments(archived: Any) -> dict[str, Any]:
    """Every sealed chunk of an archive by its file."""
    archive = archived.archive
    return {
        layout.chunk(segment.name(label.label)): (label, segment)
        for label in archive.labels(archive.latest())
        for segment in label.segments
    }


def entries_of(archive: Any) -> list[tuple[Any, ...]]:
    """All sealed entries, read from the directory without any of the code under test."""
    rows = []
    for path in sorted((archive.root / "log").glob("*.log")):
        for at, _, entry in read_entries(path.read_bytes(), Limits()):
            msg, receipt = entry.msg(), entry.receipt()
            rows.append(
                (
                    receipt.label, receipt.stream_seq, receipt.hub_ts, msg.ver, msg.profile_id,
                    msg.client_id, msg.client_seq, msg.prev_ack, msg.auth_ref, msg.ct_hash,
                    msg.ciphertext, msg.sig, receipt.ver, receipt.leaf_hash, receipt.mmr_root,
                    receipt.hub_sig, entry.msg_bytes, entry.receipt_bytes, f"log/{path.name}", at,
                )
            )  # fmt: skip
    return rows


def plain(row: Any) -> tuple[Any, ...]:
    return tuple(bytes(item) if isinstance(item, bytearray) else item for item in row)


@pytest.mark.parametrize("kind", ["in_files", "in_bucket"])
def test_every_field_of_every_sealed_entry(
    spark_session: SparkSession, request: pytest.FixtureRequest, kind: str
) -> None:
    result = request.getfixturevalue(kind)
    rows = sorted(plain(row) for row in table(spark_session, result).collect())
    assert rows == sorted(entries_of(result))
    assert len(rows) >= 24


def keep_only(archive: Any, needed: Callable[[Any, Any], bool]) -> int:
    """Delete every chunk that is not needed; how many are left."""
    chunks = segments(archive)
    for file, (label, segment) in chunks.items():
        if not needed(label, segment):
            archive.plant(file, None)
    left = sum(needed(*chunk) for chunk in chunks.values())
    assert 0 < left < len(chunks)
    return left


def test_only_the_chunks_of_a_sequence_are_opened(
    spark_session: SparkSession, in_files: Any
) -> None:
    label = next(
        item.label for item, segment in segments(in_files).values() if segment.start_seq > 8
    )
    keep_only(in_files, lambda item, segment: item.label == label and segment.start_seq == 9)
    expected = table(spark_session, in_files).where(
        (f.col("label") == f.lit(label)) & f.col("stream_seq").between(10, 12)
    )
    assert sorted(row.stream_seq for row in expected.collect()) == [10, 11, 12]


def test_only_the_chunks_of_some_labels_are_opened(
    spark_session: SparkSession, in_files: Any
) -> None:
    labels = sorted({item.label for item, _ in segments(in_files).values()})[:2]
    keep_only(in_files, lambda item, _: item.label in labels)
    expected = table(spark_session, in_files).where(f.col("label").isin(labels))
    assert {bytes(row.label) for row in expected.collect()} == set(labels)


def test_only_the_chunks_of_a_time_are_opened(spark_session: SparkSession, in_files: Any) -> None:
    times = sorted(segment.last_ts for _, segment in segments(in_files).values())
    keep_only(in_files, lambda _, segment: segment.last_ts == times[-1])
    expected = table(spark_session, in_files).where(f.col("hub_ts") >= times[-1])
    assert expected.count() > 0


def test_a_damaged_chunk_is_named_and_gives_no_rows(in_files: Any) -> None:
    file, (label, segment) = min(segments(in_files).items())
    raw = bytearray((in_files.root / file).read_bytes())
    raw[120] ^= 1
    in_files.plant(file, bytes(raw))
    reader = SparkLogReader(in_files.services, in_files.hub_id, WINDOW)
    partition = ChunkPartition(chunk_of(in_files.hub_id, label, segment))
    with pytest.raises(Untrusted, match=f"{file} at byte 0"):
        next(reader.read(partition))


def test_an_empty_range_opens_no_chunk(in_files: Any) -> None:
    reader = SparkLogReader(in_files.services, in_files.hub_id, WINDOW)
    assert reader.partitions()
    given: list[Filter] = [GreaterThan(("stream_seq",), 10**6)]
    assert list(reader.pushFilters(given)) == given
    assert reader.partitions() == []


@pytest.mark.parametrize(
    ("conditions", "bounds"),
    [
        ([EqualTo(("label",), bytearray(LABEL))], LogBounds(frozenset({LABEL}))),
        (
            [In(("label",), (LABEL, OTHER)), EqualTo(("label",), OTHER)],
            LogBounds(frozenset({OTHER})),
        ),
        ([GreaterThan(("stream_seq",), 4)], LogBounds(stream_seq=LogSpan(first=5))),
        ([In(("stream_seq",), (4, 9))], LogBounds(stream_seq=LogSpan(4, 9))),
        ([LessThanOrEqual(("hub_ts",), 7)], LogBounds(hub_ts=LogSpan(last=7))),
        ([Not(EqualTo(("hub_ts",), 7)), IsNotNull(("label",))], LogBounds()),
        ([EqualTo(("client_seq",), 7), EqualTo(("stream_seq",), None)], LogBounds()),
    ],
)  # fmt: skip
def test_conditions_narrow_what_is_looked_at(conditions: list[Any], bounds: LogBounds) -> None:
    log_bounds = LogBounds()
    for condition in conditions:
        log_bounds = narrowed(log_bounds, condition)
    assert log_bounds == bounds


def test_a_window_holds_a_bounded_part_of_a_chunk(in_files: Any) -> None:
    """Chunks much larger than a window are read piece by piece, and every entry comes once."""
    limits = Limits(max_msg_bytes=1_000)
    label, segment = max(segments(in_files).values(), key=lambda item: item[1].size)
    chunk = chunk_of(in_files.hub_id, label, segment)
    result = list(windows(in_files.archive.objects, chunk, limits, window=limits.largest_entry))
    assert len(result) >= 3
    seqs = [item.framed.receipt.stream_seq for part in result for item in part]
    assert seqs == list(range(segment.start_seq, segment.end_seq + 1))
    assert batch(result[0], chunk.file).schema == ARROW


@pytest.mark.parametrize("cut", [-1, -500])
def test_a_chunk_that_ends_early_is_refused(in_files: Any, cut: int) -> None:
    file, (label, segment) = min(segments(in_files).items())
    in_files.plant(file, (in_files.root / file).read_bytes()[:cut])
    chunk = chunk_of(in_files.hub_id, label, segment)
    with pytest.raises(Untrusted, match="truncated"):
        list(windows(in_files.archive.objects, chunk, Limits()))
