"""A driver for spark-submit: a table of events through a store in which one task gets stuck."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from recorder.archive.audit import read_terms
from spark_jobs.event_files import ReaderIdentity
from spark_jobs.events_table import EventsJob
from support.spark.failing_store import SlowStore
from veen.objects.port import FileSettings


def main(store: Path, hub_id: str, client: Path, terms: Path, marks: Path) -> None:
    job = EventsJob(
        services=SlowStore(FileSettings(store), marks=marks),
        hub_id=bytes.fromhex(hub_id),
        table="events",
        reader=ReaderIdentity(client, client.with_suffix(".passphrase")),
        terms=read_terms(terms),
    )
    spark = SparkSession.builder.appName("speculating").getOrCreate()
    outcome = job.run(spark.sparkContext)
    print(outcome.rows)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(Path, sys.argv[3:6]))
