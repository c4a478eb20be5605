"""The command line and environment of spark-submit."""

from __future__ import annotations

import sys
from pathlib import Path

from veen.system.spark_submit import SparkSubmit

JOB = Path("/jobs/fold.py")


def _settings(command: list[str]) -> list[str]:
    return [
        command[number + 1]
        for number, option in enumerate(command)
        if option == "--conf" and number < command.index(str(JOB))
    ]


def test_settings_come_before_the_job_and_its_arguments_after() -> None:
    spark = SparkSubmit("local[2]", {"spark.driver.memory": "2g"})
    command = spark.command(JOB, ["--conf", "mine"])
    assert Path(command[0]).name == "spark-submit"
    assert command[1:3] == ["--master", "local[2]"]
    assert _settings(command)[-1] == "spark.driver.memory=2g"
    assert command[-3:] == [str(JOB), "--conf", "mine"]


def test_given_settings_replace_defaults() -> None:
    command = SparkSubmit("local", {"spark.log.level": "INFO"}).command(JOB, [])
    assert _settings(command) == ["spark.ui.enabled=false", "spark.log.level=INFO"]


def test_spark_uses_this_python_and_locally_the_loopback_interface() -> None:
    assert SparkSubmit("local[*]", {}).environment({"A": "b"}) == {
        "A": "b",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    assert SparkSubmit("spark://host:7077", {}).environment({}) == {
        "PYSPARK_PYTHON": sys.executable
    }


def test_the_environment_takes_precedence_over_defaults() -> None:
    given = {"PYSPARK_PYTHON": "/other/python", "SPARK_LOCAL_IP": "10.0.0.1"}
    assert SparkSubmit("local", {}).environment(given) == given
