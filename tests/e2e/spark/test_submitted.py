"""``events_table`` as it is submitted: to a cluster over a bucket, and to stores that overwrite."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from recorder.archive.audit import AuditTerms
from spark_jobs import events_table
from spark_jobs.event_files import EventTable, ReaderIdentity
from spark_jobs.events_table import EventsJob
from spark_jobs.log_source import VeenLog
from veen.objects.port import S3Settings, StoreRefused, StoreSettings
from veen.objects.store import StoreRef, add_options, store_ref


def words_of(sealed: Any, terms: Path) -> tuple[str | Path, ...]:
    """What the job is told of a hub in a bucket, and of who reads it."""
    result, settings = sealed.archived, sealed.archived.settings
    return (
        events_table.__file__, "--store", settings.url, "--endpoint", settings.endpoint,
        "--addressing", "path", "--hub-id", result.hub_id.hex(), "--terms", terms,
        "--client", sealed.client, "--passphrase-file", sealed.passphrase_file,
    )  # fmt: skip


def a_job(sealed: Any, terms: AuditTerms, table: str, settings: StoreSettings) -> EventsJob:
    return EventsJob(
        services=StoreRef(settings),
        hub_id=sealed.archived.hub_id,
        table=table,
        reader=ReaderIdentity(sealed.client, sealed.passphrase_file),
        terms=terms,
    )


def files_of(sealed: Any, table: str) -> set[tuple[Any, ...]]:
    """Every committed file, by its name below the table, with its hash."""
    event_table = EventTable(sealed.archived.services.to_read(), table, sealed.archived.hub_id)
    return {
        (file.key.removeprefix(f"{table}/"), file.day, file.rows, file.sha256)
        for file in event_table.files()
    }


def bodies_of(sealed: Any, table: str) -> list[bytes]:
    event_table = EventTable(sealed.archived.services.to_read(), table, sealed.archived.hub_id)
    return sorted(
        row["body"]
        for file in event_table.files()
        for row in pq.read_table(
            pa.BufferReader(event_table.store.objects.get(file.key, expect=file.sha256))
        ).to_pylist()
        if row["opened"]
    )


@pytest.fixture
def terms_file(audit_terms: AuditTerms, tmp_path: Path) -> Path:
    path = tmp_path / "terms"
    path.write_bytes(audit_terms.to_json())
    return path


@pytest.mark.long
def test_a_cluster_over_a_bucket_makes_the_same_files_as_local_mode(
    spark_submit: Callable[..., Any],
    spark_session: SparkSession,
    sealed_in: Callable[[StoreSettings], Any],
    store_settings_for: Callable[[str], StoreSettings],
    audit_terms: AuditTerms,
    terms_file: Path,
) -> None:
    sealed = sealed_in(store_settings_for("s3"))
    words = (*words_of(sealed, terms_file), "--table", "there", "--plaintext-at-rest", "yes")
    done = spark_submit(*words)
    assert done.returncode == events_table.OK, done.stderr
    assert "the passphrase" not in done.stderr + done.stdout
    here = a_job(sealed, audit_terms, "here", sealed.archived.settings).run(
        spark_session.sparkContext
    )
    assert f"{here.chunks} new chunks, {here.rows} events" in done.stdout
    assert files_of(sealed, "there") == files_of(sealed, "here")
    sent = {item.body for item in sealed.sent.values() if item.body is not None}
    bodies = bodies_of(sealed, "there")
    assert len(bodies) == len(set(bodies)) == here.opened > 30
    assert set(bodies) <= sent


@pytest.mark.long
def test_nothing_is_written_in_the_clear_unless_it_is_said(
    spark_submit: Callable[..., Any],
    sealed_in: Callable[[StoreSettings], Any],
    store_settings_for: Callable[[str], StoreSettings],
    terms_file: Path,
) -> None:
    sealed = sealed_in(store_settings_for("s3"))
    done = spark_submit(*words_of(sealed, terms_file))
    assert done.returncode == events_table.REFUSED
    assert "--plaintext-at-rest yes" in done.stdout + done.stderr
    assert list(sealed.archived.services.to_read().objects.keys("events/")) == []


def test_a_store_that_overwrites_takes_a_table_only_when_it_is_accepted(
    spark_session: SparkSession,
    sealed_in: Callable[[StoreSettings], Any],
    overwriting_store: S3Settings,
    audit_terms: AuditTerms,
) -> None:
    sealed, parser = sealed_in(overwriting_store), ArgumentParser()
    add_options(parser)
    words = ["--endpoint", overwriting_store.endpoint or "", "--addressing", "path"]
    strict = store_ref(overwriting_store.url, vars(parser.parse_args(words)))
    with pytest.raises(StoreRefused, match="ignores If-None-Match"):
        a_job(sealed, audit_terms, "events", strict.settings).run(spark_session.sparkContext)
    assert files_of(sealed, "events") == set()
    accepting = parser.parse_args([*words, "--accept-overwriting-store"])
    services = store_ref(overwriting_store.url, vars(accepting))
    done = a_job(sealed, audit_terms, "events", services.settings).run(spark_session.sparkContext)
    assert len(files_of(sealed, "events")) >= done.chunks > 3


@pytest.mark.long
def test_a_submitted_job_takes_a_store_that_overwrites_only_when_asked_to(
    spark_submit: Callable[..., Any],
    sealed_in: Callable[[StoreSettings], Any],
    overwriting_store: S3Settings,
    terms_file: Path,
) -> None:
    sealed = sealed_in(overwriting_store)
    words = (*words_of(sealed, terms_file), "--plaintext-at-rest", "yes")
    refused = spark_submit(*words)
    assert refused.returncode == events_table.REFUSED, refused.stderr
    assert "ignores If-None-Match" in refused.stdout + refused.stderr
    done = spark_submit(*words, "--accept-overwriting-store")
    assert done.returncode == events_table.OK, done.stderr
    assert len(bodies_of(sealed, "events")) > 30


def test_a_store_that_overwrites_is_queried_without_being_accepted(
    spark_session: SparkSession,
    sealed_in: Callable[[StoreSettings], Any],
    overwriting_store: S3Settings,
) -> None:
    archived = sealed_in(overwriting_store).archived
    spark_session.dataSource.register(VeenLog)
    options = {"store": overwriting_store.url, "hub_id": archived.hub_id.hex(),
               "endpoint": overwriting_store.endpoint, "addressing": "path"}  # fmt: skip
    assert spark_session.read.format("veen_log").options(**options).load().count() > 40
