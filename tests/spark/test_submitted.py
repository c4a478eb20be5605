"""``events_table`` as it is submitted: to a cluster over a bucket, and to stores that overwrite."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs import events_table
from spark_jobs.audit_terms import AuditTerms
from spark_jobs.event_manifest import EventTable
from spark_jobs.event_work import Reader
from spark_jobs.events_table import EventsJob
from spark_jobs.store_door import StoreDoor, add_options, door_of
from spark_jobs.veen_log import VeenLog
from veen.objects.port import StoreRefused
from veen.objects.settings import S3Settings, StoreSettings


def words_of(sealed: Any, terms: Path) -> tuple[str | Path, ...]:
    """What the job is told of a hub in a bucket, and of who reads it."""
    found, settings = sealed.archived, sealed.archived.settings
    return (
        events_table.__file__, "--store", settings.url, "--endpoint", settings.endpoint,
        "--addressing", "path", "--hub-id", found.hub_id.hex(), "--terms", terms,
        "--client", sealed.client, "--passphrase-file", sealed.passphrase_file,
    )  # fmt: skip


def a_job(sealed: Any, terms: AuditTerms, table: str, settings: StoreSettings) -> EventsJob:
    return EventsJob(
        door=StoreDoor(settings),
        hub_id=sealed.archived.hub_id,
        table=table,
        reader=Reader(sealed.client, sealed.passphrase_file),
        terms=terms,
    )


def files_of(sealed: Any, table: str) -> set[tuple[Any, ...]]:
    """Every committed file, by its name below the table, with its hash."""
    found = EventTable(sealed.archived.door.to_read(), table, sealed.archived.hub_id)
    return {
        (one.key.removeprefix(f"{table}/"), one.day, one.rows, one.sha256) for one in found.files()
    }


def bodies_of(sealed: Any, table: str) -> list[bytes]:
    found = EventTable(sealed.archived.door.to_read(), table, sealed.archived.hub_id)
    return sorted(
        row["body"]
        for file in found.files()
        for row in pq.read_table(
            pa.BufferReader(found.store.objects.get(file.key, expect=file.sha256))
        ).to_pylist()
        if row["opened"]
    )


@pytest.fixture
def terms_file(terms: AuditTerms, tmp_path: Path) -> Path:
    path = tmp_path / "terms"
    path.write_bytes(terms.to_json())
    return path


@pytest.mark.long
def test_a_cluster_over_a_bucket_makes_the_same_files_as_local_mode(
    submit: Callable[..., Any],
    spark: SparkSession,
    sealed_in: Callable[[StoreSettings], Any],
    settings_for: Callable[[str], StoreSettings],
    terms: AuditTerms,
    terms_file: Path,
) -> None:
    sealed = sealed_in(settings_for("s3"))
    words = (*words_of(sealed, terms_file), "--table", "there", "--plaintext-at-rest", "yes")
    done = submit(*words)
    assert done.returncode == events_table.OK, done.stderr
    assert "the passphrase" not in done.stderr + done.stdout
    here = a_job(sealed, terms, "here", sealed.archived.settings).run(spark.sparkContext)
    assert f"{here.chunks} new chunks, {here.rows} events" in done.stdout
    assert files_of(sealed, "there") == files_of(sealed, "here")
    sent = {one.body for one in sealed.sent.values() if one.body is not None}
    bodies = bodies_of(sealed, "there")
    assert len(bodies) == len(set(bodies)) == here.opened > 30
    assert set(bodies) <= sent


@pytest.mark.long
def test_nothing_is_written_in_the_clear_unless_it_is_said(
    submit: Callable[..., Any],
    sealed_in: Callable[[StoreSettings], Any],
    settings_for: Callable[[str], StoreSettings],
    terms_file: Path,
) -> None:
    sealed = sealed_in(settings_for("s3"))
    done = submit(*words_of(sealed, terms_file))
    assert done.returncode == events_table.REFUSED
    assert "--plaintext-at-rest yes" in done.stdout + done.stderr
    assert list(sealed.archived.door.to_read().objects.keys("events/")) == []


def test_a_store_that_overwrites_takes_a_table_only_when_it_is_accepted(
    spark: SparkSession,
    sealed_in: Callable[[StoreSettings], Any],
    overwriting: S3Settings,
    terms: AuditTerms,
) -> None:
    sealed, parser = sealed_in(overwriting), ArgumentParser()
    add_options(parser)
    words = ["--endpoint", overwriting.endpoint or "", "--addressing", "path"]
    strict = door_of(overwriting.url, vars(parser.parse_args(words)))
    with pytest.raises(StoreRefused, match="ignores If-None-Match"):
        a_job(sealed, terms, "events", strict.settings).run(spark.sparkContext)
    assert files_of(sealed, "events") == set()
    accepting = parser.parse_args([*words, "--accept-overwriting-store"])
    door = door_of(overwriting.url, vars(accepting))
    done = a_job(sealed, terms, "events", door.settings).run(spark.sparkContext)
    assert len(files_of(sealed, "events")) >= done.chunks > 3


@pytest.mark.long
def test_a_submitted_job_takes_a_store_that_overwrites_only_when_it_is_told(
    submit: Callable[..., Any],
    sealed_in: Callable[[StoreSettings], Any],
    overwriting: S3Settings,
    terms_file: Path,
) -> None:
    sealed = sealed_in(overwriting)
    words = (*words_of(sealed, terms_file), "--plaintext-at-rest", "yes")
    refused = submit(*words)
    assert refused.returncode == events_table.REFUSED, refused.stderr
    assert "ignores If-None-Match" in refused.stdout + refused.stderr
    done = submit(*words, "--accept-overwriting-store")
    assert done.returncode == events_table.OK, done.stderr
    assert len(bodies_of(sealed, "events")) > 30


def test_a_store_that_overwrites_is_queried_without_being_accepted(
    spark: SparkSession, sealed_in: Callable[[StoreSettings], Any], overwriting: S3Settings
) -> None:
    found = sealed_in(overwriting).archived
    spark.dataSource.register(VeenLog)
    options = {"store": overwriting.url, "hub_id": found.hub_id.hex(),
               "endpoint": overwriting.endpoint, "addressing": "path"}  # fmt: skip
    assert spark.read.format("veen_log").options(**options).load().count() > 40
