"""Jobs as they are submitted: to a cluster of its own processes, and by the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.archive.audit import AuditTerms
from recorder.archive.log_files import in_archive
from spark_jobs import verify_log
from spark_jobs.event_files import EventTable
from spark_jobs.session import identity_in
from spark_jobs.verify_log import audit, here
from support.paths import SUPPORT
from support.spark.table_rows import due, read_rows, rows_of
from veen.audit.context import Depth
from veen.audit.report import SignedAuditReport
from veen.crypto import SigningKey
from veen.digest import h
from veen.identity_store import read_signed

BIN = Path(sys.executable).parent
Submit = Callable[..., Any]


def damage(archive: Any) -> str:
    """One flipped bit in a sealed chunk, and the report that is due."""
    path = max((archive.root / "log").glob("*.log"), key=lambda item: item.stat().st_size)
    raw = bytearray(path.read_bytes())
    raw[500] ^= 1
    archive.plant(f"log/{path.name}", bytes(raw))
    return f"log/{path.name}"


def report_of(archive: Any, terms: AuditTerms) -> Any:
    inventory = in_archive(archive.services, archive.hub_id)
    return audit(inventory, terms, Depth.FULL, here(inventory.files), known=lambda _hub_id: None)


@pytest.mark.long
def test_a_job_that_is_submitted_by_hand_gives_the_same_bytes(
    spark_submit: Submit, sealed_hub: Any, audit_terms: AuditTerms, tmp_path: Path
) -> None:
    result, file = sealed_hub.archived, damage(sealed_hub.archived)
    (tmp_path / "terms").write_bytes(audit_terms.to_json())
    done = spark_submit(
        verify_log.__file__, "--store", result.url,
        "--hub-id", result.hub_id.hex(), "--terms", tmp_path / "terms",
        "--sign-with", sealed_hub.client, "--passphrase-file", sealed_hub.passphrase_file,
        "--report", tmp_path / "report",
    )  # fmt: skip
    assert done.returncode == verify_log.FAULTS, done.stderr
    report = report_of(result, audit_terms)
    assert [fault.file for fault in report.faults] == [file]
    key = identity_in(sealed_hub.client, sealed_hub.passphrase_file).client
    assert (tmp_path / "report").read_bytes() == report.signed(key).to_json()
    assert "the passphrase" not in done.stderr + done.stdout


def test_a_second_copy_of_a_task_puts_no_event_twice(
    spark_submit: Submit, sealed_hub: Any, audit_terms: AuditTerms, tmp_path: Path
) -> None:
    result, marks = sealed_hub.archived, tmp_path / "marks"
    (tmp_path / "terms").write_bytes(audit_terms.to_json())
    done = spark_submit(
        SUPPORT / "spark" / "speculating.py", result.settings.root, result.hub_id.hex(),
        sealed_hub.client, tmp_path / "terms", marks,
        conf=("spark.speculation=true", "spark.speculation.efficiency.enabled=false",
              "spark.speculation.quantile=0.1",
              "spark.speculation.multiplier=1.1", "spark.speculation.interval=50ms",
              "spark.speculation.minTaskRuntime=100ms"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stuck = marks / (marks / "stuck").read_text()
    assert len(list(stuck.iterdir())) >= 2
    table = EventTable(result.services.to_read(), "events", result.hub_id)
    rows = rows_of(table)
    assert read_rows(rows) == due(sealed_hub)
    assert len(rows) == int(done.stdout.split()[-1]) > 40
    # The second copy has put the same object, and none beside it.
    keys = set(table.store.objects.keys(f"{table.prefix}/stream="))
    assert keys == {file.key for file in table.files()}


CONFIG = """\
[limits]
max_checkpoint_interval = 8

[[streams]]
name = "record/a"

[[streams]]
name = "epoch/b"
epoch_sec = 3600
"""


def veen(environment: dict[str, str], *words: str | Path) -> Any:
    return subprocess.run(
        [BIN / "veen", "audit", "log", *words],
        env=environment, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip


def test_the_command_gives_the_same_bytes_here_and_from_a_cluster(
    spark_environment: dict[str, str],
    spark_master: str,
    sealed_hub: Any,
    audit_terms: AuditTerms,
    tmp_path: Path,
) -> None:
    archived = sealed_hub.archived
    damage(archived)
    (tmp_path / "hub.toml").write_text(CONFIG)
    words = ("--config", tmp_path / "hub.toml", "--sign-with", sealed_hub.client,
             "--passphrase-file", sealed_hub.passphrase_file)  # fmt: skip
    reports, events = [], tmp_path / "events"
    events.mkdir()
    logged = ("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events}")
    for number, where in enumerate(
        (
            ("--store", archived.url),
            ("--data-dir", archived.root),
            ("--store", archived.url, "--engine", "spark", "--master", spark_master, *logged),
        )
    ):
        file = tmp_path / f"report-{number}"
        done = veen(spark_environment, *words, *where, "--report", file)
        assert done.returncode == 3, done.stderr
        assert "1 faults, the first in log/chunk-" in done.stderr
        assert "the passphrase" not in done.stderr + done.stdout
        reports.append((file.read_bytes(), done.stdout))
    assert reports[0] == reports[1] == reports[2]
    assert any(events.iterdir()), "--conf has reached Spark"
    signed = SignedAuditReport.from_json(reports[0][0])
    assert signed.verify(signed.signed_by).to_json() == report_of(archived, audit_terms).to_json()


def test_a_setting_of_spark_is_a_name_with_a_value(spark_environment: dict[str, str]) -> None:
    for wrong in ("spark.authenticate", "authenticate=true", "spark. x=1"):
        done = veen(spark_environment, "--store", "file:///x", "--engine", "spark", "--conf", wrong)
        assert done.returncode == 1
        assert "expected spark.NAME=VALUE" in done.stderr


def test_h02_a_job_judges_by_the_newest_identity_that_is_known(
    spark_environment: dict[str, str], spark_master: str, sealed_hub: Any, tmp_path: Path
) -> None:
    """A log signed by a key that had retired by then, with the identity of its time beside it."""
    archived = sealed_hub.archived
    (seed,) = (archived.root / "keys").glob("*.key")
    old, new = SigningKey(seed.read_bytes()), SigningKey(h(b"the key after"))
    before = read_signed(archived.root).identity
    after = before.rotated(old, new.public, before.current.valid_from, 0)
    (tmp_path / "newer.cbor").write_bytes(after.encode())
    (tmp_path / "newer.sig").write_bytes(after.signature_by(new))
    (tmp_path / "hub.toml").write_text(CONFIG)
    words = ("--config", tmp_path / "hub.toml", "--sign-with", sealed_hub.client,
             "--passphrase-file", sealed_hub.passphrase_file)  # fmt: skip
    engines = ((), ("--engine", "spark", "--master", spark_master))
    for trust, code in (((), 6), (("--hub-identity", tmp_path / "newer.cbor"), 3)):
        reports = []
        for number, engine in enumerate(engines):
            file = tmp_path / f"report-{code}-{number}"
            where = ("--store", archived.url, *engine, *trust, "--report", file)
            done = veen(spark_environment, *words, *where)
            assert done.returncode == code, done.stdout + done.stderr
            reports.append(SignedAuditReport.from_json(file.read_bytes()))
        assert reports[0] == reports[1]
        assert reports[0].report.ok is (code != 3)
        judged = f"identity {1 if code == 6 else 2} of hub"
        assert any(judged in note for note in reports[0].report.notes)


@pytest.mark.parametrize("words", [(), ("--store", "file:///x", "--data-dir", "y")])
def test_the_command_wants_one_log(
    spark_environment: dict[str, str], words: tuple[str, ...]
) -> None:
    done = veen(spark_environment, *words)
    assert done.returncode == 1
    assert "--store or --data-dir" in done.stderr


def test_without_an_identity_a_key_is_made_and_named(
    spark_environment: dict[str, str], in_files: Any, tmp_path: Path
) -> None:
    (tmp_path / "hub.toml").write_text(CONFIG)
    words = ("--store", in_files.url, "--config", tmp_path / "hub.toml",
             "--hub-identity", in_files.root)  # fmt: skip
    signers = []
    for name in ("one", "two"):
        done = veen(spark_environment, *words, "--report", tmp_path / name)
        assert done.returncode == 0, done.stderr
        signed = SignedAuditReport.from_json((tmp_path / name).read_bytes())
        assert signed.verify(signed.signed_by).ok
        assert f"signed_by: {signed.signed_by.hex()}" in done.stdout
        signers.append(signed.signed_by)
    assert signers[0] != signers[1]
