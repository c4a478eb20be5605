"""The audit of an archive in Spark on two cores, against bare verifications in two processes.

The session is started and one audit is run before anything counts: the start of Spark, the start
of its Python workers and their imports are left out, and printed by themselves. The number of
events is that of BENCH_SPARK_EVENTS; memory is taken at a tenth of it and at all of it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

import bare
import inside
import psutil
import sample
from measure import Measurement, compare_timed

from hub.admission import VerifiedMsg
from hub.sequencer.committer import Committer
from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.log import HubLog
from recorder.archive.audit import AuditTerms
from recorder.archive.log_files import in_archive
from recorder.archive.push import push
from recorder.archive.source import PushSource
from spark_jobs.verify_log import SparkAuditPool, audit
from veen.audit.context import Depth
from veen.limits import Limits
from veen.objects.port import FileSettings
from veen.objects.store import StoreRef

EVENTS = int(os.environ.get("BENCH_SPARK_EVENTS", "65536"))
CHUNK = 4_096
GROUP = 256
WRITERS = 8
ROUNDS = 3
CORES = 2
BARE = 8_192


def measure() -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir="/var/tmp") as folder:
        small, large = (_archive(Path(folder), count) for count in (EVENTS // 10, EVENTS))
        begun = time.perf_counter()
        with _session() as spark:
            small.audit(spark, Depth.FULL)
            yield _plain("spark_audit_start_up", time.perf_counter() - begun, "s")
            before = _memory(small, spark)
            yield from _rates(spark, large)
            after = _memory(large, spark)
    yield Measurement(
        bench="spark_audit_memory",
        value=after / 2**20,
        unit="MiB",
        against="memory at a tenth of the events",
        ratio=after / before,
        at_most=1.2,
    )


def _rates(spark: Any, large: Archive) -> Iterator[Measurement]:
    with ProcessPoolExecutor(CORES, get_context("spawn")) as pool:
        list(pool.map(bare.verify, [BARE] * CORES))

        def two_bare() -> float:
            """Seconds of two verifications, on both cores at once."""
            begun = time.perf_counter()
            list(pool.map(bare.verify, [BARE] * CORES))
            return 2 * (time.perf_counter() - begun) / (CORES * BARE)

        for name, depth, least in (
            ("spark_audit_full", Depth.FULL, 0.7),
            ("spark_audit_hashes_only", Depth.HASHES, None),
        ):
            result = compare_timed(lambda d=depth: large.audit(spark, d), two_bare, ROUNDS)
            yield Measurement(
                bench=name,
                value=1 / result.seconds,
                unit="events/s",
                against="two bare Ed25519 verifications in two processes",
                ratio=1 / result.ratio,
                at_least=least,
            )


@dataclass(frozen=True)
class Archive:
    services: StoreRef
    hub_id: bytes
    entries: int

    def audit(self, spark: Any, depth: Depth) -> float:
        """Seconds for one entry."""
        begun = time.perf_counter()
        inventory = in_archive(self.services, self.hub_id)
        pool = SparkAuditPool(spark.sparkContext, inventory.files).pool()
        report = audit(inventory, AuditTerms(), depth, pool)
        if not report.ok or report.entries != self.entries:
            raise AssertionError(f"{len(report.faults)} faults in {report.entries} entries")
        return (time.perf_counter() - begun) / report.entries


@contextmanager
def _session() -> Iterator[Any]:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def _archive(folder: Path, count: int) -> Archive:
    """A hub of ``count`` entries of 512 bytes of payload, sealed in chunks, and archived."""
    entries = count // GROUP * GROUP
    with inside.directory() as datadir:
        with _committing(datadir, Limits(max_checkpoint_interval=CHUNK)) as committer:
            writers = inside.writers(committer, WRITERS)
            for _ in range(entries // GROUP):
                messages = [msg for writer in writers for msg in writer.write(GROUP // WRITERS)]
                committer.commit([VerifiedMsg.of(msg) for msg in messages], inside.CLOCK)
        services = StoreRef(FileSettings(folder / f"store-{count}"))
        source = PushSource(datadir.root, sample.LIMITS)
        done = push(source, services.to_write(), sealer=None, progress=lambda *_: None)
    return Archive(services, done.hub_id, entries + WRITERS)


@contextmanager
def _committing(datadir: DataDir, limits: Limits) -> Iterator[Committer]:
    keys = identity.load_or_create(datadir, os.urandom, inside.CLOCK)
    log = HubLog(datadir, keys, limits, ())
    try:
        yield Committer(log, inside.GATE)
    finally:
        log.close()


def _memory(archive: Archive, spark: Any) -> int:
    """The most that the Python driver and its workers were seen to hold together (RSS) during an
    audit, looked at ten times a second; the JVM, whose heap is bounded, is left out."""
    done = Event()
    with ThreadPoolExecutor(1) as watcher:
        most = watcher.submit(_watch, done)
        try:
            archive.audit(spark, Depth.FULL)
        finally:
            done.set()
        return most.result()


def _watch(done: Event) -> int:
    most = _held()
    while not done.wait(0.1):
        most = max(most, _held())
    return most


def _held() -> int:
    ours, held = psutil.Process(), 0
    for child in (ours, *ours.children(recursive=True)):
        try:
            held += 0 if "java" in child.name() else child.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return held


def _plain(name: str, value: float, unit: str) -> Measurement:
    return Measurement(bench=name, value=value, unit=unit)
