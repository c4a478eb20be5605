"""Reconciliation of a million events in ten thousand bundles: seconds and memory.

Every imported event is a line of its own, and one bundle in a hundred was lost. Each engine runs in
a process that does nothing else; the start of Spark and its workers is part of what is measured.
BENCH_RECONCILE_EVENTS takes another number of events.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import NamedTuple

from measure import Measurement
from pyspark.sql import SparkSession

from bridge.reconcile.facts import Export, Fact, Import, ImportedFact, LedgerFact, fact_line
from bridge.reconcile.reconcile import reconcile_files
from spark_jobs.reconcile import reconcile_on

EVENTS = int(os.environ.get("BENCH_RECONCILE_EVENTS", "1000000"))
BUNDLE = 100
STREAMS = 10


class Run(NamedTuple):
    seconds: float
    peak_mib: float
    digest: str


def measure() -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir="/var/tmp") as folder:
        path = Path(folder) / "facts.jsonl"
        with path.open("wb") as file:
            file.writelines(fact_line(fact) + b"\n" for fact in _facts())
        alone, spark = _measured(_alone, path), _measured(_on_spark, path)
    if alone.digest != spark.digest:
        raise AssertionError("the two engines gave different reports")
    for name, result in (("in_process", alone), ("spark", spark)):
        yield Measurement(bench=f"bridge_reconcile_{name}", value=result.seconds, unit="s")
        yield Measurement(
            bench=f"bridge_reconcile_{name}_memory", value=result.peak_mib, unit="MiB"
        )


def _facts() -> Iterator[Fact]:
    random, hub, prev = Random(1), _named("hub"), bytes(32)
    for n in range(1, EVENTS // BUNDLE + 1):
        stream, target = f"export/{n % STREAMS}", f"import/{n % STREAMS}"
        first = (n - 1) // STREAMS * BUNDLE + 1
        bundle, entry_hash = _named("bundle", n), _named("entry", n)
        yield LedgerFact(_named("bridge"), n, prev, entry_hash, bundle)
        yield Export(hub, stream, first, first + BUNDLE - 1, bundle, "ledger")
        prev = entry_hash
        if random.random() < 0.01:
            continue
        for seq in range(first, first + BUNDLE):
            yield Import(
                hub, stream, seq, seq, bundle, ImportedFact.IMPORTED, target, seq, seq, seq
            )


def _named(*parts: object) -> bytes:
    return sha256(repr(parts).encode()).digest()


def _measured(work: Callable[[Path], Run], path: Path) -> Run:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, path).result()


def _alone(path: Path) -> Run:
    begun = time.perf_counter()
    digest = reconcile_files([path]).digest().hex()
    return _run(begun, digest, resource.RUSAGE_SELF)


def _on_spark(path: Path) -> Run:
    """Its memory is that of the largest of its processes, which is the Java one."""
    begun = time.perf_counter()
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    gateway = spark.sparkContext._gateway
    try:
        lines = spark.sparkContext.textFile(str(path), 8)
        digest = reconcile_on(spark.sparkContext, lines).digest().hex()
    finally:
        spark.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()
    return _run(begun, digest, resource.RUSAGE_CHILDREN)


def _run(begun: float, digest: str, whose: int) -> Run:
    took = time.perf_counter() - begun
    return Run(took, resource.getrusage(whose).ru_maxrss / 1024, digest)
