"""Reconciliation on Spark gives the bytes that one process gives."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bridge.reconcile.facts import ReconcileFacts, fact_lines
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.render import ReportPlaces, keep
from bridge.reconcile.report import SignedReconcileReport
from spark_jobs.reconcile import reconcile_on
from support.bridge.reconcile_histories import a_history, named
from support.long_form import LONG
from support.paths import ROOT
from veen.keystore.directory import ClientDir

HISTORIES = 60 if LONG else 2

JOB = ROOT / "spark_jobs" / "reconcile.py"
BIN = Path(sys.executable).parent
OFF = ("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1")


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


def test_spark_and_one_process_agree_byte_for_byte(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(HISTORIES):
        facts, _ = a_history(7 * seed + 3)
        path = tmp_path / f"facts-{seed}.jsonl"
        path.write_bytes(b"\n".join(fact_lines(facts)))
        lines = spark.sparkContext.textFile(str(path), 3)
        assert reconcile_on(spark.sparkContext, lines).encode() == reconcile(facts).encode()


def submitted(*words: object) -> subprocess.CompletedProcess[str]:
    """The job as its users run it."""
    command = [BIN / "spark-submit", "--master", "local[2]", *OFF, JOB, *words]
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=JOB.parents[1],
        env=os.environ
        | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
    )


@pytest.mark.long
def test_submitted_it_refuses_no_facts_and_signs_the_same_bytes(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    (tmp_path / "bad.jsonl").write_text('{"fact": "unheard of"}\n')
    refused = submitted("--facts", tmp_path / "bad.jsonl", "--out", out)
    assert refused.returncode == 3, refused.stderr[-2000:]
    assert "reconcile: line 1: expected a fact" in refused.stdout + refused.stderr
    assert not out.exists()
    facts, _ = a_history(11)
    other = facts.sources[0]._replace(checkpoint_id=named("another"), created_at=1)
    lines = [*fact_lines(facts), *fact_lines(ReconcileFacts(sources=(other,)))]
    (tmp_path / "facts-1.jsonl").write_bytes(b"\n".join(lines[::2]))
    (tmp_path / "facts-2.jsonl").write_bytes(b"\n".join(lines[1::2]))
    report = reconcile(facts)
    reader = ClientDir(tmp_path / "reader").create(now=1, random=os.urandom, passphrase=None)
    more = ("--svg", tmp_path / "report.svg", "--gaps", tmp_path / "gaps")
    chosen = ("--checkpoint", report.sources[0].checkpoint_id.hex())
    signed = ("--sign-with", tmp_path / "reader", *chosen)
    done = submitted("--facts", tmp_path / "facts-*.jsonl", "--out", out, *more, *signed)
    assert done.returncode == (0 if report.is_whole else 3), done.stderr[-2000:]
    signed_reconcile_report = SignedReconcileReport.decode(out.read_bytes())
    signed_reconcile_report.verify(reader.id_sign.public)
    assert out.read_bytes() == SignedReconcileReport.of(report, reader.id_sign).encode() + b"\n"
    keep(report, None, ReportPlaces(picture=tmp_path / "own.svg", gaps=tmp_path / "own"))
    assert (tmp_path / "report.svg").read_bytes() == (tmp_path / "own.svg").read_bytes()
    names = sorted(path.name for path in (tmp_path / "own").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "gaps").iterdir())
    for name in names:
        assert (tmp_path / "own" / name).read_bytes() == (tmp_path / "gaps" / name).read_bytes()
