"""H01: packages forged without any key are never proven, and say why and what may be missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from recorder.query.digest import rows_hash
from recorder.query.evidence import WitnessCheck, evidence_hash, verified
from recorder.query.package import Package, PackageTrust, RecordedMessage
from recorder.query.package_verify import (
    REQUIRED,
    ClaimOutcome,
    ClaimState,
    PackageClaim,
    PackageVerdict,
    check,
    check_bytes,
)
from support.broken import changed
from support.recorder import query_histories, query_proven
from support.recorder.query_proven import RECORDER, trust_of
from support.recorder.recorded_log import KEYS
from veen.digest import h

FULL = {"mode": "full"}
STRANGER = bytes.fromhex(list(KEYS)[1])


@pytest.fixture(scope="module")
def log(new_recorded_log: Callable[..., Any]) -> Any:
    """A log that holds nothing but events, so that full evidence can cover every place."""
    history = query_histories.history(11, 10)
    return new_recorded_log([replace(item, is_event=True) for item in history])


@pytest.fixture(scope="module")
def package(log: Any, a_descriptor: Callable[..., Any]) -> Package:
    result: Package = query_proven.package_of(log, a_descriptor(evidence=FULL))
    return result


def with_rows(package: Package, rows: tuple[Any, ...], **changes: Any) -> Package:
    """The package with other rows, and every hash that needs no key made again."""
    hashed = rows_hash(rows)
    digest = replace(
        package.digest, rows_hash=hashed.rows_hash, rows_chain=hashed.chain, row_count=len(rows),
        event_count=len(rows), **changes,
    )  # fmt: skip
    return replace(package, rows=rows, digest=digest)


def without_records(package: Package) -> Package:
    return replace(package, request=None, result=None, later_checkpoint=None)


def recorded_by(log: Any, package: Package, who: bytes) -> Package:
    """Request and result written into the log's query streams by another of its clients."""
    recorded = []
    for stream, kind, text in (
        ("record/query/requests", "query.submitted", package.descriptor.encode()),
        ("record/query/results", "query.result", package.digest.encode()),
    ):
        entry = log.append(stream, 1_700_009_900, query_proven.event(kind, text, who))
        raw, receipt, body_key = log.pairs[entry.stream, entry.seq]
        recorded.append(
            RecordedMessage(msg=raw, receipt=receipt, body_key=body_key, inclusion=None)
        )
    return replace(package, request=recorded[0], result=recorded[1], later_checkpoint=None)


def test_h01_an_honest_package_is_proven_and_says_that_it_is_complete(
    log: Any, package: Package
) -> None:
    verdict = check_bytes(package.encode(), trust_of(log))
    assert verdict.outcome is ClaimOutcome.PROVEN
    first = verdict.summary
    assert first.startswith("proven: the recorder recorded this result")
    assert f"of {package.digest.checkpoint.created_at}, signed by the hub" in first
    assert "no matching row is missing" in first
    document = verdict.document()
    assert (document["outcome"], document["holds"], document["complete"]) == ("proven", True, True)


def test_h01_without_records_nothing_is_proven(log: Any, package: Package) -> None:
    verdict = check(without_records(package), trust_of(log))
    assert verdict.outcome is ClaimOutcome.UNPROVEN
    assert verdict.summary.startswith("unproven: request_recorded: the package has no event of")
    assert verdict.document()["holds"] is False


@pytest.mark.parametrize("missing", ["request", "result"])
def test_h01_one_record_is_not_enough(log: Any, package: Package, missing: str) -> None:
    verdict = check(changed(package, **{missing: None}), trust_of(log))
    assert verdict.outcome is ClaimOutcome.UNPROVEN
    assert verdict.reason.startswith(f"{missing}_recorded: ")


def test_h01_invented_rows_without_evidence_are_the_services_word_at_best(
    log: Any, package: Package, a_descriptor: Callable[..., Any]
) -> None:
    asked = a_descriptor(evidence={"mode": "none"})
    honest = query_proven.package_of(log, asked)
    assert isinstance(honest.rows, tuple)
    rows = (*honest.rows[:2], {**honest.rows[2], "subject_id": "user:invented"})
    forged = without_records(with_rows(honest, rows))
    verdict = check(forged, trust_of(log))
    assert verdict.failed == ()
    assert verdict.outcome is ClaimOutcome.UNPROVEN
    assert "rows may be missing" in verdict.completeness
    recorded = check(honest, trust_of(log))
    assert recorded.outcome is ClaimOutcome.UNPROVEN
    assert (
        recorded.reason
        == "rows_witnessed: evidence mode none: the rows are only claimed by the service"
    )
    assert "whether it left out a matching row" in recorded.completeness


def test_h01_dropped_rows_with_all_hashes_made_again_are_never_proven(
    log: Any, package: Package
) -> None:
    assert isinstance(package.rows, tuple)
    cut = len(package.rows) - 2
    fewer = with_rows(package, package.rows[:cut])
    entries = summary_lines(log, package)[:cut]
    lines = evidence_hash(package.descriptor, package.digest.result_id, entries)
    digest = replace(fewer.digest, evidence_hash=lines)
    forged = replace(fewer, digest=digest, witnesses=package.witnesses[:cut])
    bare = check(without_records(forged), trust_of(log))
    assert bare.failed == ()
    assert bare.outcome is ClaimOutcome.UNPROVEN
    assert bare.completeness == "completeness unproven: rows may be missing"
    assert check(forged, trust_of(log)).outcome is ClaimOutcome.FAILED


def summary_lines(log: Any, package: Package) -> list[Any]:
    check = WitnessCheck(log.hub, package.checkpoint)
    entries = [check.entry(witness.witness, witness.stream) for witness in package.witnesses]
    return [verified(entry, package.checkpoint) for entry in entries]


def test_h01_who_recorded_it_must_be_given_to_compare(log: Any, package: Package) -> None:
    verdict = check(package, PackageTrust(hub_id=log.hub.hub_id))
    assert verdict.outcome is ClaimOutcome.UNPROVEN
    assert f"client {RECORDER.hex()}" in verdict.reason
    assert "--recorder-id" in verdict.reason


def test_h01_records_of_another_client_are_refused(log: Any, package: Package) -> None:
    """Whoever may write to the query streams can record any digest there."""
    forged = recorded_by(log, package, STRANGER)
    verdict = check(forged, trust_of(log))
    assert verdict.outcome is ClaimOutcome.FAILED
    assert f"expected {RECORDER.hex()}" in verdict.reason
    assert check(forged, trust_of(log, STRANGER)).outcome is ClaimOutcome.PROVEN


def test_h01_records_under_another_name_for_the_recorder_are_refused(
    log: Any, package: Package
) -> None:
    assert check(package, trust_of(log, h(b"another"))).outcome is ClaimOutcome.FAILED


def test_h01_a_result_of_another_query_is_refused(
    log: Any, package: Package, a_descriptor: Callable[..., Any]
) -> None:
    other = query_proven.package_of(log, a_descriptor(query_id="q-2", evidence=FULL))
    verdict = check(replace(package, result=other.result), trust_of(log))
    assert verdict.reason.startswith("result_recorded: ")
    assert verdict.outcome is ClaimOutcome.FAILED


def test_h01_a_record_of_another_stream_is_refused(log: Any, package: Package) -> None:
    verdict = check(replace(package, result=package.request), trust_of(log))
    assert verdict.reason == "result_recorded: the message is of another stream"


def test_h01_an_older_result_of_the_same_query_does_not_prove_newer_rows(
    new_recorded_log: Callable[..., Any], a_descriptor: Callable[..., Any]
) -> None:
    """The digest names its checkpoint: another one under the same record is refused."""
    history = [replace(item, is_event=True) for item in query_histories.history(12, 6)]
    log = new_recorded_log(history)
    old = query_proven.package_of(log, a_descriptor(evidence=FULL))
    log.checkpoint = log.make_checkpoint(log.checkpoint.created_at + 60)
    new = query_proven.package_of(log, a_descriptor(evidence=FULL))
    mixed = replace(new, result=old.result, later_checkpoint=None)
    assert check(mixed, trust_of(log)).reason.startswith("result_recorded: ")


def test_h01_spot_evidence_proves_the_drawn_rows_alone(
    log: Any, a_descriptor: Callable[..., Any]
) -> None:
    asked = a_descriptor(evidence={"mode": "spot", "sample_rate": 0.5})
    package = query_proven.package_of(log, asked)
    shown, count = len(package.witnesses), package.digest.row_count
    assert 0 < shown < count
    verdict = check(package, trust_of(log))
    assert verdict.outcome is ClaimOutcome.UNPROVEN
    assert f"{shown} of {count} rows follow" in verdict.reason
    assert f"other {count - shown} are only claimed by the service" in verdict.reason


def test_h01_that_nothing_matched_is_not_proven(log: Any, a_descriptor: Callable[..., Any]) -> None:
    package = query_proven.package_of(
        log, a_descriptor(filter={"subject_id": "nobody"}, evidence=FULL)
    )
    verdict = check(package, trust_of(log))
    assert (package.digest.row_count, verdict.outcome) == (0, ClaimOutcome.UNPROVEN)
    assert "that no event matched is only claimed by the service" in verdict.reason


def test_h01_that_an_empty_stream_has_no_rows_is_proven(
    new_recorded_log: Callable[..., Any], a_descriptor: Callable[..., Any]
) -> None:
    log = new_recorded_log([])
    verdict = check(query_proven.package_of(log, a_descriptor(evidence=FULL)), trust_of(log))
    assert verdict.outcome is ClaimOutcome.PROVEN
    assert verdict.completeness.startswith("complete: ")


def test_h01_an_invented_aggregate_of_nothing_is_refused(
    log: Any, a_descriptor: Callable[..., Any]
) -> None:
    asked = a_descriptor(
        filter={"subject_id": "nobody"}, evidence=FULL, aggregate={"metrics": ["count"]}
    )
    package = query_proven.package_of(log, asked)
    rows = ({"count": 99},)
    hashed = rows_hash(rows)
    digest = replace(package.digest, rows_hash=hashed.rows_hash, rows_chain=hashed.chain)
    forged = without_records(replace(package, rows=rows, digest=digest))
    assert check(forged, trust_of(log)).reason.startswith("rows_witnessed: the rows are not")


def test_h01_a_claim_that_was_never_checked_is_a_gap() -> None:
    held = [PackageClaim(name, ClaimState.HELD, "") for name in REQUIRED]
    assert PackageVerdict(tuple(held)).outcome is ClaimOutcome.PROVEN
    assert PackageVerdict(tuple(held[:-1])).outcome is ClaimOutcome.UNPROVEN
    assert PackageVerdict(()).outcome is ClaimOutcome.UNPROVEN
