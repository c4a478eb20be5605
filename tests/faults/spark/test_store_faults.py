"""Jobs over a bucket whose answers are refused, lost, cut short or doubled: the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from recorder.archive.audit import AuditTerms
from recorder.archive.log_files import in_archive
from spark_jobs.event_files import EventTable, ReaderIdentity
from spark_jobs.events_table import EventsJob
from spark_jobs.verify_log import SparkAuditPool, audit
from support.hub import driven_hub
from support.objects import fault_proxy
from support.spark.table_rows import due, read_rows, rows_of
from veen.audit.context import Depth
from veen.objects.port import S3Settings, StoreSettings
from veen.objects.store import StoreRef

pytestmark = pytest.mark.e2e


@pytest.fixture
def proxy(moto: Any) -> Iterator[Any]:
    with fault_proxy.FaultProxy(moto.port) as running:
        yield running


def through(proxy: Any, settings: StoreSettings) -> StoreRef:
    """The same bucket by way of the proxy; whoever gets no answer does not wait for long."""
    assert isinstance(settings, S3Settings)
    hasty = replace(settings, endpoint=proxy.endpoint, timeout_seconds=1.0, attempts=12)
    return StoreRef(hasty)


def check_that_it_was_hit(proxy: Any) -> None:
    proxy.plan(None)
    assert {"500", "503"} & set(proxy.seen)
    assert {"cut answer", "short answer"} & set(proxy.seen)
    assert sum(proxy.seen.values()) - proxy.seen["well"] > 10


def test_an_audit_among_faults_gives_the_report_of_the_hub(
    spark_session: SparkSession, in_bucket: Any, audit_terms: AuditTerms, proxy: Any
) -> None:
    path = max((in_bucket.root / "log").glob("*.log"), key=lambda item: item.stat().st_size)
    raw = bytearray(path.read_bytes())
    raw[500] ^= 1
    in_bucket.plant(f"log/{path.name}", bytes(raw))
    proxy.plan(7, out_of=300)
    inventory = in_archive(through(proxy, in_bucket.settings), in_bucket.hub_id)
    pool = SparkAuditPool(spark_session.sparkContext, inventory.files).pool()
    report = audit(inventory, audit_terms, Depth.FULL, pool)
    check_that_it_was_hit(proxy)
    assert [fault.file for fault in report.faults] == [f"log/{path.name}"]
    assert report.to_json() == driven_hub.check(in_bucket.root).to_json()


def test_a_table_written_among_faults_has_every_event_once(
    spark_session: SparkSession,
    sealed_in: Callable[[StoreSettings], Any],
    store_settings_for: Callable[[str], StoreSettings],
    audit_terms: AuditTerms,
    proxy: Any,
) -> None:
    sealed_hub = sealed_in(store_settings_for("s3"))
    archived = sealed_hub.archived
    job = EventsJob(
        services=through(proxy, archived.settings),
        hub_id=archived.hub_id,
        table="events",
        reader=ReaderIdentity(sealed_hub.client, sealed_hub.passphrase_file),
        terms=audit_terms,
    )
    proxy.plan(11, out_of=300)
    outcome = job.run(spark_session.sparkContext)
    check_that_it_was_hit(proxy)
    table = EventTable(archived.services.to_read(), "events", archived.hub_id)
    assert outcome.refused == ()
    assert read_rows(rows_of(table)) == due(sealed_hub)
