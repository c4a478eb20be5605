"""What each claim of a package rests on, and how the claims make up a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from recorder.query.digest import rows_hash
from recorder.query.package import Package, PackageAnchor, PackageTrust, RowHashes
from recorder.query.package_verify import (
    ORIGINS,
    REQUIRED,
    ClaimOutcome,
    ClaimState,
    PackageClaim,
    PackageVerdict,
    check,
    check_bytes,
)
from support.recorder import query_histories, query_proven
from support.recorder.query_proven import trust_of
from veen.errors import Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint

FULL = {"mode": "full"}
HELD, FAILED, NOT_COVERED = ClaimState.HELD, ClaimState.FAILED, ClaimState.NOT_COVERED


@pytest.fixture(scope="module")
def log(new_recorded_log: Callable[..., Any]) -> Any:
    """Nothing but events, so that full evidence can cover every place."""
    history = query_histories.history(37, 8)
    return new_recorded_log([replace(item, is_event=True) for item in history])


@pytest.fixture(scope="module")
def package(log: Any, a_descriptor: Callable[..., Any]) -> Package:
    result: Package = query_proven.package_of(log, a_descriptor(evidence=FULL))
    return result


def claim(verdict: PackageVerdict, name: str) -> tuple[ClaimState, str]:
    return next((item.state, item.detail) for item in verdict.claims if item.name == name)


def verdict_of(**states: ClaimState) -> PackageVerdict:
    """A verdict in which every required claim held, but for these."""
    named = dict.fromkeys(REQUIRED, HELD) | states
    return PackageVerdict(
        tuple(PackageClaim(name, state, f"about {name}") for name, state in named.items())
    )


def test_an_honest_package_says_what_each_claim_rests_on(log: Any, package: Package) -> None:
    verdict = check(package, trust_of(log))
    checkpoint = package.checkpoint.checkpoint_id.hex()
    created_at = package.digest.checkpoint.created_at
    assert [(item.name, item.detail) for item in verdict.claims] == [
        ("hub", "1 keys lead from the hub's name to its document"),
        ("hub_newest", f"{log.hub.described()}, is no older than the newest one known here"),
        ("checkpoint", f"up to checkpoint {checkpoint} of {created_at}, signed by the hub"),
        ("descriptor", "the digest answers q-1"),
        ("request_recorded", "the hub receipted it at 1 of record/query/requests"),
        ("request_in_log", "its inclusion proof at the later checkpoint is verified"),
        ("result_recorded", "the hub receipted it at 1 of record/query/results"),
        ("result_in_log", "its inclusion proof at the later checkpoint is verified"),
        ("searched", "4 streams, each up to the checkpoint"),
        ("time_bounds", "every stream was searched whole"),
        ("rows_hash", "8 rows"),
        ("rows_chain", "the hashes of 8 rows"),
        ("sampling", "8 of 8 events were to be witnessed"),
        ("witnesses", "8 events are in the log and match"),
        ("rows_witnessed", "each of 8 rows follows from an event in the log"),
        ("evidence_hash", "the evidence is that of the digest"),
        ("complete", "every place that was searched is witnessed"),
        ("anchors", "1 anchors, not verified; give a ledger or certificates"),
    ]
    assert verdict.document() == {
        "outcome": "proven",
        "reason": (
            "the recorder recorded this result, and each of 8 rows follows from an event in the "
            f"log, up to checkpoint {checkpoint} of {created_at}, signed by the hub"
        ),
        "complete": True,
        "completeness": "complete: no matching row is missing up to the checkpoint",
        "holds": True,
        "claims": [
            {"claim": item.name, "state": item.state.value, "detail": item.detail}
            for item in verdict.claims
        ],
    }


def test_the_reason_is_the_first_claim_that_failed() -> None:
    verdict = verdict_of(searched=FAILED, sampling=FAILED, checkpoint=NOT_COVERED)
    assert (verdict.outcome, verdict.reason) == (ClaimOutcome.FAILED, "searched: about searched")
    assert [item.name for item in verdict.failed] == ["searched", "sampling"]


def test_without_a_failure_the_reason_is_the_first_gap() -> None:
    verdict = verdict_of(sampling=NOT_COVERED, descriptor=NOT_COVERED)
    assert (verdict.outcome, verdict.gaps) == (ClaimOutcome.UNPROVEN, ("descriptor", "sampling"))
    assert verdict.reason == "descriptor: about descriptor"


def test_a_claim_that_was_never_checked_is_named_as_such() -> None:
    assert PackageVerdict(()).reason == "hub: was not checked"


RECORDED = (
    "every row that the recorder recorded is here, but whether it left out a matching row only "
    "veen query replay shows"
)


@pytest.mark.parametrize(
    ("states", "complete", "text"),
    [
        ({"complete": HELD}, True, "complete: no matching row is missing up to the checkpoint"),
        (
            {"complete": HELD, "rows_hash": FAILED}, False,
            "nothing is proven about missing rows",
        ),
        (
            {"complete": HELD, "hub_newest": NOT_COVERED}, False,
            "completeness unproven: the hub's identity may be out of date",
        ),
        (
            {"complete": NOT_COVERED}, False, f"completeness unproven: {RECORDED}",
        ),
        ({"result_recorded": NOT_COVERED}, False, "completeness unproven: rows may be missing"),
        ({"rows_chain": NOT_COVERED}, False, "completeness unproven: rows may be missing"),
    ],
    ids=["complete", "failed", "old identity", "recorded", "not recorded", "other rows"],
)  # fmt: skip
def test_says_what_is_proven_about_missing_rows(
    states: dict[str, ClaimState], complete: bool, text: str
) -> None:
    verdict = verdict_of(**states)
    assert (verdict.is_complete, verdict.completeness) == (complete, text)


@pytest.mark.parametrize(
    ("state", "ending"),
    [(HELD, ""), (FAILED, ""), (NOT_COVERED, f"; origins unproven: about {ORIGINS}")],
)
def test_the_summary_names_origins_that_are_not_covered(state: ClaimState, ending: str) -> None:
    verdict = verdict_of(**{ORIGINS: state})
    expected = f"{verdict.outcome.value}: {verdict.reason}; {verdict.completeness}{ending}"
    assert verdict.summary == expected


def dated(descriptor: Callable[..., Any], side: str) -> Any:
    """A query for all events up to a late time or from an early one on."""
    time = {"from": "2023-11-14T22:13:20Z"} if side == "from" else {"to": "2024-01-01T00:00:00Z"}
    return descriptor(filter={"time": time}, evidence=FULL)


def narrowed(package: Package, **changes: Any) -> Package:
    """The digest speaks of another range of the first stream that was searched."""
    first, *rest = package.digest.searched
    searched = (replace(first, unread=0, **changes), *rest)
    return replace(package, digest=replace(package.digest, searched=searched), result=None)


@pytest.mark.parametrize(
    ("side", "changes", "state"),
    [
        ("from", {}, HELD),
        ("to", {}, HELD),
        ("from", {"from_seq": 2}, HELD),
        ("to", {"to_seq": 1}, HELD),
        ("to", {"from_seq": 2}, FAILED),
        ("from", {"to_seq": 1}, FAILED),
        ("to", {"to_seq": 99}, FAILED),
        ("to", {"mmr_root": "00" * 32}, FAILED),
    ],
)
def test_a_time_filter_is_a_reason_to_leave_out_its_own_side_alone(
    log: Any, a_descriptor: Callable[..., Any], side: str, changes: Any, state: ClaimState
) -> None:
    package = query_proven.package_of(log, dated(a_descriptor, side), records=False)
    assert package.digest.searched[0].to_seq > 1
    verdict = check(narrowed(package, **changes), trust_of(log))
    assert claim(verdict, "searched")[0] is state
    if changes and state is HELD:
        assert claim(verdict, "time_bounds")[0] is NOT_COVERED


def test_refuses_rows_and_counts_that_do_not_belong_together(log: Any, package: Package) -> None:
    """The rows of the digest under another count, and other rows under the right count."""
    assert isinstance(package.rows, tuple)
    count = replace(package, digest=replace(package.digest, row_count=7))
    rows = (package.rows[1], package.rows[0], *package.rows[2:])
    for forged in (count, replace(package, rows=rows)):
        verdict = check(forged, trust_of(log))
        assert claim(verdict, "rows_hash")[0] is FAILED
        assert claim(verdict, "rows_chain")[0] is FAILED


def test_hashes_stand_for_the_rows_that_a_package_leaves_out(
    log: Any, a_descriptor: Callable[..., Any]
) -> None:
    package = query_proven.package_of(log, a_descriptor(evidence=FULL), hashes=True)
    verdict = check(package, trust_of(log))
    assert claim(verdict, "rows_hash")[0] is NOT_COVERED
    assert claim(verdict, "rows_chain") == (HELD, "the hashes of 8 rows")
    assert claim(verdict, "rows_witnessed")[0] is HELD
    assert isinstance(package.rows, RowHashes)
    forged = replace(package, rows=RowHashes((bytes(32), *package.rows.hashes[1:])))
    for name in ("rows_chain", "rows_witnessed"):
        assert claim(check(forged, trust_of(log)), name)[0] is FAILED


def test_refuses_a_witness_of_a_row_that_is_not_there(log: Any, package: Package) -> None:
    assert isinstance(package.rows, tuple)
    for shorter in (package.rows[:-1], package.rows[:-2], ()):
        verdict = check(replace(package, rows=shorter), trust_of(log))
        assert claim(verdict, "rows_witnessed")[0] is FAILED


def test_refuses_a_witness_where_none_was_asked_for(
    log: Any, package: Package, a_descriptor: Callable[..., Any]
) -> None:
    bare = query_proven.package_of(log, a_descriptor(evidence={"mode": "none"}), records=False)
    assert claim(check(bare, trust_of(log)), "sampling")[0] is HELD
    assert claim(check(bare, trust_of(log)), "witnesses")[0] is NOT_COVERED
    forged = replace(bare, witnesses=package.witnesses[:1])
    assert claim(check(forged, trust_of(log)), "sampling")[0] is FAILED


def test_as_many_events_as_places_may_match_and_no_more(log: Any, package: Package) -> None:
    for count, state in ((8, HELD), (9, FAILED)):
        digest = replace(package.digest, event_count=count, row_count=count)
        verdict = check(replace(package, digest=digest, result=None), trust_of(log))
        assert claim(verdict, "sampling")[0] is state


def test_an_aggregate_follows_from_all_of_its_events_or_is_the_services_word(
    log: Any, a_descriptor: Callable[..., Any]
) -> None:
    counts = {"metrics": ["count"]}
    whole = query_proven.package_of(log, a_descriptor(evidence=FULL, aggregate=counts))
    state, detail = claim(check(whole, trust_of(log)), "rows_witnessed")
    assert (state, detail) == (HELD, "all rows follow from 8 events in the log")
    spot = {"mode": "spot", "sample_rate": 0.5}
    part = query_proven.package_of(log, a_descriptor(evidence=spot, aggregate=counts))
    state, detail = claim(check(part, trust_of(log)), "rows_witnessed")
    assert state is NOT_COVERED
    assert detail.startswith(f"{len(part.witnesses)} of 8 events are witnessed")


def test_half_of_the_evidence_is_never_complete(
    log: Any, package: Package, a_descriptor: Callable[..., Any]
) -> None:
    """Witnesses of some places, or of all places under a policy that did not ask for them."""
    some = query_proven.package_of(log, a_descriptor(filter={"origin": "api-1"}, evidence=FULL))
    assert 0 < some.digest.row_count < 8
    assert claim(check(some, trust_of(log)), "complete")[0] is NOT_COVERED
    spot = a_descriptor(evidence={"mode": "spot", "sample_rate": 1.0})
    every = query_proven.package_of(log, spot)
    assert len(every.witnesses) == 8
    assert claim(check(every, trust_of(log)), "complete")[0] is NOT_COVERED


def test_a_complete_package_needs_its_rows_to_follow(log: Any, package: Package) -> None:
    assert isinstance(package.rows, tuple)
    rows = ({**package.rows[0], "origin": "elsewhere"}, *package.rows[1:])
    hashed = rows_hash(rows)
    digest = replace(package.digest, rows_hash=hashed.rows_hash, rows_chain=hashed.chain)
    verdict = check(replace(package, rows=rows, digest=digest), trust_of(log))
    assert claim(verdict, "complete")[0] is FAILED


def test_nothing_found_in_a_range_that_the_time_narrowed_is_not_proven(
    log: Any, a_descriptor: Callable[..., Any]
) -> None:
    """All streams were searched from beyond their ends: that these are right is not shown."""
    asked = a_descriptor(filter={"time": {"from": "2024-01-01T00:00:00Z"}}, evidence=FULL)
    package = query_proven.package_of(log, asked)
    assert package.digest.event_count == 0
    verdict = check(package, trust_of(log))
    assert claim(verdict, "searched")[0] is HELD
    for name in ("time_bounds", "rows_witnessed", "complete"):
        assert claim(verdict, name)[0] is NOT_COVERED
    assert verdict.outcome is ClaimOutcome.UNPROVEN


LEDGER, STAMP = PackageAnchor("ledger", b"a reference"), PackageAnchor("stamp", b"another")


def anchor_check(checkpoint: RecorderCheckpoint, ref: bytes) -> str:
    if ref != LEDGER.ref:
        raise Untrusted("no such line in the ledger")
    return f"{checkpoint.checkpoint_id.hex()} in the ledger"


@pytest.mark.parametrize(
    ("anchors", "known", "expected"),
    [
        ((), {"ledger": anchor_check}, (NOT_COVERED, "0 anchors, not verified; give a ")),
        ((STAMP,), {"ledger": anchor_check}, (NOT_COVERED, "1 anchors, not verified; give a ")),
        ((LEDGER,), {"ledger": anchor_check}, (HELD, "1 of 1: CHECKPOINT in the ledger")),
        ((STAMP, LEDGER), {"ledger": anchor_check}, (HELD, "1 of 2: CHECKPOINT in the ledger")),
        (
            (LEDGER, LEDGER), {"ledger": anchor_check},
            (HELD, "2 of 2: CHECKPOINT in the ledger; CHECKPOINT in the ledger"),
        ),
        ((LEDGER, STAMP), {"stamp": anchor_check}, (FAILED, "no such line in the ledger")),
    ],
    ids=["none", "unknown kind", "one", "one of two", "two", "refused"],
)  # fmt: skip
def test_an_anchor_counts_only_if_its_kind_can_be_verified(
    log: Any, package: Package, anchors: Any, known: Any, expected: tuple[ClaimState, str]
) -> None:
    verdict = check_bytes(replace(package, anchors=anchors).encode(), trust_of(log), known)
    state, detail = claim(verdict, "anchors")
    named = detail.replace(package.checkpoint.checkpoint_id.hex(), "CHECKPOINT")
    assert (state, named[: len(expected[1])]) == expected


def test_no_anchor_is_asked_about_a_checkpoint_that_is_not_trusted(package: Package) -> None:
    verdict = check(package, PackageTrust(hub_id=bytes(32)), {"ledger": anchor_check})
    assert claim(verdict, "anchors")[0] is FAILED


def test_origins_are_claimed_for_import_streams_alone(log: Any, package: Package) -> None:
    verdict = check(package, trust_of(log))
    assert ORIGINS not in {item.name for item in verdict.claims}
