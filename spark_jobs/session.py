"""The Spark session of a job: on the master it is given, or that of spark-submit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@contextmanager
def session(job: str) -> Iterator[SparkSession]:
    """A session that ends with the job; master and all else come from spark-submit."""
    spark = SparkSession.builder.appName(job).config(PUSHDOWN, "true").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
