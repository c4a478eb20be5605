"""Events in the clear: each exactly once, whatever fails, and never without being asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import events_table
from spark_jobs.chunk_window import chunk_of
from spark_jobs.event_files import (
    EventChunk,
    EventTable,
    EventTerms,
    EventWork,
    OtherReader,
    ReaderIdentity,
    Readership,
    write_one,
)
from spark_jobs.events_table import EventsJob, learn_streams
from support.audit import audit_files
from support.spark import failing_store
from support.spark.table_rows import due, read_rows, rows_of
from veen.crypto import SigningKey
from veen.errors import Untrusted, VeenError
from veen.limits import Limits
from veen.log import layout
from veen.log.entry import control_label
from veen.objects.port import FileSettings
from veen.objects.store import StoreRef

pytestmark = pytest.mark.e2e

LABEL = b"l" * 32


def job(
    sealed_hub: Any, terms: Any, services: StoreRef | None = None, table: str = "events"
) -> EventsJob:
    archived = sealed_hub.archived
    return EventsJob(
        services=services or archived.services,
        hub_id=archived.hub_id,
        table=table,
        reader=ReaderIdentity(sealed_hub.client, sealed_hub.passphrase_file),
        terms=terms,
    )  # fmt: skip


def the_table(sealed_hub: Any, name: str = "events") -> EventTable:
    archived = sealed_hub.archived
    return EventTable(archived.services.to_read(), name, archived.hub_id)


def test_every_sealed_event_is_a_row_and_only_new_ones_are_added(
    spark_session: SparkSession, sealed_hub: Any, audit_terms: Any
) -> None:
    outcome = job(sealed_hub, audit_terms).run(spark_session.sparkContext)
    table = the_table(sealed_hub)
    rows = rows_of(table)
    assert read_rows(rows) == due(sealed_hub)
    assert outcome.rows == len(rows) > 40
    unopened = [row for row in rows if not row["opened"]]
    assert len(unopened) == outcome.rows - outcome.opened > 5
    assert all(row["body"] is row["schema"] is None for row in unopened)
    assert all(row["body"] is not None for row in rows if row["opened"])
    before = list(table.files())
    manifest = table.manifest()
    assert manifest is not None
    assert any(len(chunk.files) > 1 for label in table.labels(manifest) for chunk in label.chunks)

    assert job(sealed_hub, audit_terms).run(spark_session.sparkContext).chunks == 0
    assert list(table.files()) == before
    sealed_hub.send(20)
    added = job(sealed_hub, audit_terms).run(spark_session.sparkContext)
    assert 0 < added.rows < 40
    assert set(before) < set(table.files())
    assert read_rows(rows_of(table)) == due(sealed_hub)


def test_answers_that_are_lost_put_no_event_twice(
    spark_session: SparkSession, sealed_hub: Any, audit_terms: Any, tmp_path: Path
) -> None:
    settings = sealed_hub.archived.settings
    services = failing_store.LosingStore(settings, marks=tmp_path / "lost")
    outcome = job(sealed_hub, audit_terms, services).run(spark_session.sparkContext)
    table = the_table(sealed_hub)
    assert len(list((tmp_path / "lost").iterdir())) >= failing_store.LOST
    assert outcome.rows == len(rows_of(table))
    assert read_rows(rows_of(table)) == due(sealed_hub)
    keys = set(table.store.objects.keys(f"{table.prefix}/"))
    data = {key for key in keys if "/_manifest/" not in key}
    assert data == {file.key for file in table.files()}


def test_the_folders_of_a_table_are_its_partitions(
    spark_session: SparkSession, sealed_hub: Any, audit_terms: Any, tmp_path: Path
) -> None:
    """As a bucket shows it: keys are paths, whatever lies beside the files."""
    job(sealed_hub, audit_terms).run(spark_session.sparkContext)
    table = the_table(sealed_hub)
    for key in table.store.objects.keys(f"{table.prefix}/"):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(table.store.objects.get(key))
    result = spark_session.read.parquet(str(tmp_path / table.prefix))
    assert dict(result.dtypes)["stream"] == "string"
    assert dict(result.dtypes)["day"] == "date"
    rows = [row.asDict() for row in result.collect()]
    assert read_rows(rows) == due(sealed_hub)
    assert all(row["stream"] == row["stream_id"].hex() for row in rows)
    assert {row["day"].isoformat() for row in rows} == {file.day for file in table.files()}
    stream, day = rows[0]["stream"], rows[0]["day"]
    part = result.where((result.stream == stream) & (result.day == day))
    for file in table.files():
        if f"/stream={stream}/day={day}/" not in file.key:
            (tmp_path / file.key).unlink()
    assert part.count() == sum((row["stream"], row["day"]) == (stream, day) for row in rows)


def writing(sealed_hub: Any, terms: Any) -> tuple[EventTerms, list[EventWork]]:
    """The work of a job, to be done here."""
    archived = sealed_hub.archived
    streams = learn_streams(archived.services, archived.hub_id, terms)
    given = EventTerms(
        services=archived.services.probed(),
        prefix="events/x",
        readership=Readership(
            hub=streams.context.hub, limits=Limits(), profiles=streams.profiles()
        ),
        reader=ReaderIdentity(sealed_hub.client, sealed_hub.passphrase_file),
    )
    archive = archived.archive
    labels = [label for label in archive.labels(archive.latest()) if label.segments]
    work = [
        EventWork(chunk_of(archived.hub_id, label, segment), streams.of(label))
        for label in labels
        for segment in label.segments
        if label.label != control_label(archived.hub_id)
    ]
    return given, work


def test_a_chunk_gives_the_same_bytes_every_time(sealed_hub: Any, audit_terms: Any) -> None:
    given, work = writing(sealed_hub, audit_terms)
    first = [write_one(given, item) for item in work]
    assert [write_one(given, item) for item in work] == first
    assert all(done.events and done.events.rows for done in first)


def test_a_chunk_that_nobody_signed_is_refused_and_the_others_are_not(
    sealed_hub: Any, audit_terms: Any
) -> None:
    """Anyone can seal to a public key: what client and hub did not sign is no event."""
    given, work = writing(sealed_hub, audit_terms)
    file = layout.chunk(work[0].chunk.name)

    def strange(entries: list[Any]) -> None:
        entries[0].msg = entries[0].msg.signed(SigningKey(bytes(32)))

    raw = (sealed_hub.archived.root / file).read_bytes()
    sealed_hub.archived.plant(file, audit_files.forged(raw, strange))
    done = [write_one(given, item) for item in work]
    assert done[0].events is None
    assert "not signed by its client" in done[0].refused
    assert all(item.events for item in done[1:])


def test_another_identity_does_not_mix_into_a_table(sealed_hub: Any, audit_terms: Any) -> None:
    archived = sealed_hub.archived
    table = EventTable(archived.services.to_write(), "events", archived.hub_id)
    table.commit(bytes(32), {})
    with pytest.raises(OtherReader, match="another --table"):
        table.known(b"r" * 32)


def test_drivers_that_commit_at_once_lose_nothing(tmp_path: Path) -> None:
    store = StoreRef(FileSettings(tmp_path)).to_write()
    table = EventTable(store, "events", bytes(32))
    chunks = [
        EventChunk(start_seq=8 * number + 1, end_seq=8 * number + 8, rows=8, opened=8, files=())
        for number in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        done = [
            pool.submit(table.commit, b"r" * 32, {LABEL: [chunk, chunks[0]]}) for chunk in chunks
        ]
    assert [item.result() for item in done] == [None] * 4
    manifest = table.manifest()
    assert manifest is not None
    assert [label.chunks for label in table.labels(manifest)] == [tuple(chunks)]


def test_a_run_that_was_cut_off_leaves_nothing_to_read(sealed_hub: Any, audit_terms: Any) -> None:
    given, work = writing(sealed_hub, audit_terms)
    assert write_one(given, work[0]).events
    assert list(the_table(sealed_hub).files()) == []


def test_a_control_log_with_a_fault_is_refused(sealed_hub: Any, audit_terms: Any) -> None:
    archived = sealed_hub.archived
    (path,) = (archived.root / "log").glob(f"*{control_label(archived.hub_id).hex()}*.open")
    raw = bytearray(path.read_bytes())
    raw[150] ^= 1
    archived.plant(f"log/{path.name}", bytes(raw))
    with pytest.raises(Untrusted, match="run verify_log"):
        learn_streams(archived.services, archived.hub_id, audit_terms)


@pytest.mark.parametrize("arguments", [[], ["--plaintext-at-rest", "no"]])
def test_plaintext_at_rest_is_refused_unless_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    options = ["--store", "file:///nowhere", "--hub-id", "00" * 32, "--client", "x"]
    assert events_table.main([*options, *arguments]) == events_table.REFUSED
    assert "in the clear" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["hubs", "Events", "a/b", "", "..", "x" * 65])
def test_a_table_needs_a_name_of_its_own(tmp_path: Path, name: str) -> None:
    store = StoreRef(FileSettings(tmp_path)).to_write()
    with pytest.raises(VeenError, match="table"):
        EventTable(store, name, bytes(32))
