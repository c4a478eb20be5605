"""Reconciliation on Spark gives the bytes that one process gives."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from reconcile_histories import a_history

from bridge.reconcile import fact_file
from bridge.reconcile.reconcile import reconcile
from spark_jobs.reconcile import reconcile_on


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    place = tmp_path_factory.mktemp("spark")
    os.environ |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    session = (
        SparkSession.builder.master("local[2]")
        .appName("reconcile")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(place))
        .config("spark.local.dir", str(place))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def test_spark_and_one_process_agree_byte_for_byte(
    spark: SparkSession, tmp_path: Path, spark_history_count: int
) -> None:
    for seed in range(spark_history_count):
        facts, _ = a_history(7 * seed + 3)
        path = tmp_path / f"facts-{seed}.jsonl"
        path.write_bytes(b"\n".join(fact_file.lines(facts)))
        lines = spark.sparkContext.textFile(str(path), 3)
        assert reconcile_on(spark.sparkContext, lines).encode() == reconcile(facts).encode()
