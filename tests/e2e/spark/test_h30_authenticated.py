"""H30: a Spark cluster as the container files start it takes no worker without the secret."""

from __future__ import annotations

from pathlib import Path

from support.spark.spark_standalone import AUTHENTICATED, Daemon

SECRET = {"_SPARK_AUTH_SECRET": "known to this cluster"}


def test_h30_a_worker_registers_with_the_secret_and_not_without(
    spark_environment: dict[str, str], tmp_path: Path
) -> None:
    ours = spark_environment | SECRET
    master = Daemon(
        ours, "127.0.0.1", "master.Master", says=r"spark://127\.0\.0\.1:\d+", java=AUTHENTICATED
    )
    daemons = [master]
    options = ("--cores", "1", "--memory", "512m", "--work-dir", str(tmp_path), master.matched)

    def worker(given: dict[str, str], says: str, java: str = AUTHENTICATED) -> None:
        daemons.append(Daemon(given, "127.0.0.1", "worker.Worker", *options, says=says, java=java))

    try:
        worker(ours, "Successfully registered")
        refused = "Failed to connect to master"
        worker(spark_environment | {"_SPARK_AUTH_SECRET": "another one"}, refused)
        worker(spark_environment, refused, java="")
    finally:
        for daemon in reversed(daemons):
            daemon.stop()
