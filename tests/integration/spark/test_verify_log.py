"""The audit in Spark says byte for byte what the hub's own check says, whatever was planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from recorder.archive.audit import AuditTerms, parse_terms
from recorder.archive.log_files import in_archive, in_directory
from spark_jobs.verify_log import SparkAuditPool, audit, here
from support.audit import audit_plants
from support.hub import driven_hub
from support.spark import failing_files
from veen.audit.context import Depth
from veen.audit.report import AuditReport
from veen.crypto import SigningKey
from veen.errors import Untrusted, VeenError
from veen.log import layout

PLANTS = (
    "flip", "drop", "drop_first", "drop_last", "swap", "duplicate", "wrong_root",
    "bad_receipt_signature", "bad_message_signature", "missing_chunk", "forged_summary",
    "forged_peaks", "forged_checkpoint",
)  # fmt: skip


def by_spark(
    spark: SparkSession, archive: Any, terms: AuditTerms, partitions: int | None = None
) -> AuditReport:
    inventory = in_archive(archive.services, archive.hub_id)
    pool = SparkAuditPool(spark.sparkContext, inventory.files, partitions).pool()
    return audit(inventory, terms, Depth.FULL, pool)


def in_process(archive: Any, terms: AuditTerms, depth: Depth = Depth.FULL) -> AuditReport:
    inventory = in_archive(archive.services, archive.hub_id)
    return audit(inventory, terms, depth, here(inventory.files))


def place_in(archive: Any, start_seq: int = 9) -> Any:
    """A sealed chunk of the plain stream, and what the planting of faults needs to know of it."""
    names = [layout.parse_chunk(f"log/{path.name}") for path in (archive.root / "log").iterdir()]
    labels = {name.label for name in names if name and name.start_seq == 9}
    (name,) = (
        name for name in names if name and name.label in labels and name.start_seq == start_seq
    )
    (seed,) = (archive.root / "keys").iterdir()
    size = (archive.root / layout.chunk(name)).stat().st_size // 8
    return audit_plants.Place(name, size, SigningKey(seed.read_bytes()))


def plant(archive: Any, fault: str, place: Any) -> None:
    """The same damage in the directory and in the archive."""
    before = {f"log/{path.name}": path.read_bytes() for path in (archive.root / "log").iterdir()}
    after = dict(before)
    getattr(audit_plants, fault)(after, place)
    changed = [name for name in before if after.get(name) != before[name]]
    assert changed
    for name in changed:
        archive.plant(name, after.get(name))


def test_a_sound_archive_gives_the_report_of_the_hub(
    spark_session: SparkSession, in_bucket: Any, audit_terms: AuditTerms
) -> None:
    report = by_spark(spark_session, in_bucket, audit_terms)
    assert report.ok
    assert report.entries == sum(head.head_seq for head in report.heads.values()) > 40
    assert report.to_json() == driven_hub.check(in_bucket.root).to_json()
    assert report.to_json() == in_process(in_bucket, audit_terms).to_json()


@pytest.mark.parametrize("fault", PLANTS)
def test_every_planted_fault_gives_the_report_of_the_hub(
    spark_session: SparkSession,
    in_files: Any,
    audit_terms: AuditTerms,
    fault: str,
) -> None:
    plant(in_files, fault, place_in(in_files))
    report = by_spark(spark_session, in_files, audit_terms)
    assert not report.ok
    assert report.to_json() == in_process(in_files, audit_terms).to_json()
    assert report.to_json() == driven_hub.check(in_files.root).to_json()


def test_the_list_of_planted_faults_is_whole() -> None:
    assert sorted(PLANTS) == sorted(item.__name__ for item in audit_plants.PLANTS)


@pytest.mark.parametrize("partitions", [1, 2, 3, 7])
def test_any_number_of_partitions_gives_the_same_bytes(
    spark_session: SparkSession,
    in_files: Any,
    audit_terms: AuditTerms,
    partitions: int,
) -> None:
    plant(in_files, "wrong_root", place_in(in_files))
    plant(in_files, "forged_peaks", place_in(in_files, 1))
    report = by_spark(spark_session, in_files, audit_terms, partitions)
    assert {fault.code for fault in report.faults} == {"I3", "PEAKS"}
    assert report.to_json() == in_process(in_files, audit_terms).to_json()


def test_faults_in_a_bucket_and_in_its_tail_are_found(
    spark_session: SparkSession, in_bucket: Any, audit_terms: AuditTerms
) -> None:
    path = max((in_bucket.root / "log").glob("*.open"), key=lambda item: item.stat().st_size)
    raw = bytearray(path.read_bytes())
    raw[200] ^= 1
    in_bucket.plant(f"log/{path.name}", bytes(raw))
    report = by_spark(spark_session, in_bucket, audit_terms)
    assert [(fault.file, fault.code) for fault in report.faults] == [(f"log/{path.name}", "FRAME")]
    assert report.to_json() == driven_hub.check(in_bucket.root).to_json()


def test_a_failed_task_is_tried_again_and_changes_nothing(
    spark_session: SparkSession, in_files: Any, audit_terms: AuditTerms, tmp_path: Path
) -> None:
    inventory = in_archive(in_files.services, in_files.hub_id)
    files = failing_files.FailingFiles(inventory.files, tmp_path / "failed")
    pool = SparkAuditPool(spark_session.sparkContext, files).pool()
    report = audit(inventory, audit_terms, Depth.FULL, pool)
    assert len(list((tmp_path / "failed").iterdir())) >= 3
    assert report.to_json() == in_process(in_files, audit_terms).to_json()


def test_hashes_only_leaves_out_signatures_alone(in_files: Any, audit_terms: AuditTerms) -> None:
    plant(in_files, "bad_message_signature", place_in(in_files))
    assert [fault.code for fault in in_process(in_files, audit_terms).faults] == ["SIG"]
    result = in_process(in_files, audit_terms, Depth.HASHES)
    assert [fault.code for fault in result.faults] == ["SUMMARY"]


def test_a_directory_is_audited_as_its_archive(in_files: Any, audit_terms: AuditTerms) -> None:
    inventory = in_directory(in_files.root, {})
    report = audit(inventory, audit_terms, Depth.FULL, here(inventory.files))
    assert report.to_json() == in_process(in_files, audit_terms).to_json()


def test_a_label_whose_manifest_is_damaged_is_still_audited(
    in_files: Any, audit_terms: AuditTerms
) -> None:
    place = place_in(in_files)
    plant(in_files, "flip", place)
    manifest = in_files.archive.latest()
    ref = manifest.ref(place.name.label)
    in_files.overwrite(in_files.archive.keys.version(ref.sha256), b"not a manifest")
    report = in_process(in_files, audit_terms)
    codes = {fault.code for fault in report.faults}
    assert {"FRAME", "MANIFEST"} <= codes


def test_a_log_cut_off_at_its_end_is_found_by_the_manifest(
    in_files: Any, audit_terms: AuditTerms
) -> None:
    """Whoever deletes the tail in the store cannot make the archive forget how far it went."""
    path = max((in_files.root / "log").glob("*.open"), key=lambda item: item.stat().st_size)
    in_files.plant(f"log/{path.name}", None)
    codes = [fault.code for fault in in_process(in_files, audit_terms).faults]
    assert codes == ["MISSING"]


def test_a_store_without_the_hub_is_refused(tmp_path: Path, in_files: Any) -> None:
    with pytest.raises(Untrusted, match="no archive of hub"):
        in_archive(in_files.services, bytes(32))
    with pytest.raises(VeenError, match="without a log"):
        in_directory(tmp_path, {})


def test_terms_survive_their_file(audit_terms: AuditTerms) -> None:
    assert parse_terms(audit_terms.to_json()) == audit_terms


@pytest.mark.parametrize(
    "raw",
    [b"[]", b'{"limit": {}}', b'{"limits": {"max_msg_bytes": -1}}', b'{"streams": [{}]}', b"{"],
)
def test_terms_that_are_none_are_refused(raw: bytes) -> None:
    with pytest.raises(VeenError, match="terms of an audit"):
        parse_terms(raw)
