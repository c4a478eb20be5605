"""Proof packages: what holds offline, and that nothing in one can be changed unnoticed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.query.descriptor import EvidencePolicy
from recorder.query.digest import SpokenUpTo, rows_hash
from recorder.query.package import Package, PackageTrust, RecordedMessage, ShownWitness
from recorder.query.package_verify import (
    ClaimOutcome,
    ClaimState,
    PackageVerdict,
    check,
    check_bytes,
)
from support.recorder import query_histories, query_proven
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Malformed, VeenError

FULL = {"mode": "full"}
SPOT = {"mode": "spot", "sample_rate": 0.4}
COUNTS = {"group_by": ["event_type"], "metrics": ["count", "sum(payload.ms)"]}


def states(verdict: PackageVerdict) -> dict[str, ClaimState]:
    return {claim.name: claim.state for claim in verdict.claims}


def named(verdict: PackageVerdict, state: ClaimState) -> set[str]:
    return {claim.name for claim in verdict.claims if claim.state is state}


@pytest.fixture(scope="module")
def log(new_recorded_log: Callable[..., Any]) -> Any:
    return new_recorded_log(query_histories.history(3, 24))


@pytest.fixture(scope="module")
def package(log: Any, a_descriptor: Callable[..., Any]) -> Package:
    result: Package = query_proven.package_of(log, a_descriptor(evidence=FULL))
    return result


def test_a_whole_package_holds_and_says_what_it_does_not_cover(log: Any, package: Package) -> None:
    verdict = check_bytes(package.encode(), query_proven.trust_of(log))
    assert verdict.failed == ()
    assert named(verdict, ClaimState.NOT_COVERED) == {"complete", "anchors"}


def test_a_package_reads_back_as_itself(package: Package) -> None:
    assert Package.decode(package.encode()).encode() == package.encode()


@pytest.mark.parametrize("evidence", [{"mode": "none"}, SPOT, FULL])
@pytest.mark.parametrize("aggregate", [None, COUNTS, {"metrics": ["count"]}])
@pytest.mark.parametrize("hashes", [False, True])
def test_every_kind_of_query_holds(
    small_log: Any,
    a_descriptor: Any,
    evidence: Any,
    aggregate: Any,
    hashes: Any,
) -> None:
    asked = a_descriptor(evidence=evidence, aggregate=aggregate)
    package = query_proven.package_of(small_log, asked, hashes=hashes, records=False)
    verdict = check_bytes(package.encode(), query_proven.trust_of(small_log))
    assert verdict.failed == ()
    result = states(verdict)
    assert result["rows_hash"] is (ClaimState.NOT_COVERED if hashes else ClaimState.HELD)
    assert result["rows_witnessed"] is (
        ClaimState.HELD if evidence == FULL else ClaimState.NOT_COVERED
    )
    assert result["request_recorded"] is ClaimState.NOT_COVERED
    assert verdict.outcome is ClaimOutcome.UNPROVEN


def test_a_result_of_every_place_is_shown_to_be_complete(
    new_recorded_log: Any, a_descriptor: Any
) -> None:
    log = new_recorded_log(
        [replace(item, is_event=True) for item in query_histories.history(4, 12)]
    )
    verdict = check(
        query_proven.package_of(log, a_descriptor(evidence=FULL)), query_proven.trust_of(log)
    )
    assert states(verdict)["complete"] is ClaimState.HELD


def test_a_time_filter_leaves_its_bounds_to_a_replay(small_log: Any, a_descriptor: Any) -> None:
    asked = a_descriptor(filter={"time": {"from": "2023-11-14T22:13:40Z"}}, evidence=FULL)
    package = query_proven.package_of(small_log, asked, records=False)
    verdict = check(package, query_proven.trust_of(small_log))
    assert verdict.failed == ()
    assert states(verdict)["time_bounds"] is ClaimState.NOT_COVERED


def test_refuses_another_hub(package: Package) -> None:
    assert "hub" in named(check(package, PackageTrust(hub_id=bytes(32))), ClaimState.FAILED)


def test_a_failed_hub_fails_all_that_rests_on_it(package: Package) -> None:
    verdict = check(package, PackageTrust(hub_id=bytes(32)))
    rests = {"hub", "checkpoint", "witnesses", "evidence_hash", "result_recorded", "searched"}
    assert rests <= named(verdict, ClaimState.FAILED)


def test_names_a_changed_row(log: Any, package: Package) -> None:
    assert isinstance(package.rows, tuple)
    rows = ({**package.rows[0], "origin": "elsewhere"}, *package.rows[1:])
    verdict = check(replace(package, rows=rows), query_proven.trust_of(log))
    assert named(verdict, ClaimState.FAILED) == {"rows_hash", "rows_chain", "rows_witnessed"}


def test_refuses_a_package_that_lacks_a_witness(log: Any, package: Package) -> None:
    witnesses = tuple(replace(witness, index=i) for i, witness in enumerate(package.witnesses[1:]))
    verdict = check(replace(package, witnesses=witnesses), query_proven.trust_of(log))
    assert {"sampling", "evidence_hash"} <= named(verdict, ClaimState.FAILED)


def test_refuses_a_witness_of_another_row(log: Any, package: Package) -> None:
    first, second, *rest = package.witnesses
    swapped = (ShownWitness(first.index, second.stream, second.witness), second, *rest)
    verdict = check(replace(package, witnesses=swapped), query_proven.trust_of(log))
    assert {"witnesses", "evidence_hash"} <= named(verdict, ClaimState.FAILED)


def test_refuses_a_witness_of_an_event_that_was_not_asked_for(log: Any, a_descriptor: Any) -> None:
    asked = a_descriptor(filter={"origin": "api-1"}, evidence=FULL)
    package = query_proven.package_of(log, asked)
    other = next(e for e in log.entries if e.event is not None and e.event.origin != "api-1")
    first = ShownWitness(0, other.stream, log.witness(other))
    verdict = check(
        replace(package, witnesses=(first, *package.witnesses[1:])), query_proven.trust_of(log)
    )
    assert "witnesses" in named(verdict, ClaimState.FAILED)


def test_refuses_a_record_of_another_query(log: Any, package: Package, a_descriptor: Any) -> None:
    other = query_proven.package_of(log, a_descriptor(query_id="q-2"))
    mixed = replace(package, request=other.request, result=other.result)
    failed = named(check(mixed, query_proven.trust_of(log)), ClaimState.FAILED)
    assert {"request_recorded", "result_recorded"} <= failed


def test_refuses_a_later_checkpoint_that_goes_back(log: Any, package: Package) -> None:
    assert package.later_checkpoint is not None
    earlier = replace(package.later_checkpoint, created_at=1).signed(log.hub_key)
    verdict = check(replace(package, later_checkpoint=earlier), query_proven.trust_of(log))
    assert {"request_in_log", "result_in_log"} <= named(verdict, ClaimState.FAILED)


def test_refuses_a_digest_that_searched_less_than_the_scope(log: Any, package: Package) -> None:
    digest = replace(package.digest, searched=package.digest.searched[1:])
    assert "searched" in named(
        check(replace(package, digest=digest), query_proven.trust_of(log)), ClaimState.FAILED
    )


def test_refuses_a_count_beyond_the_places_searched(log: Any, package: Package) -> None:
    digest = replace(package.digest, event_count=2**53 - 1, row_count=2**53 - 1)
    verdict = check(replace(package, digest=digest), query_proven.trust_of(log))
    assert "sampling" in named(verdict, ClaimState.FAILED)


ZEROS = "00" * 32


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"query_id": "q-2"}, "descriptor"),
        ({"descriptor_hash": ZEROS}, "descriptor"),
        ({"evidence_policy": EvidencePolicy("none")}, "descriptor"),
        ({"evidence_hash": ZEROS}, "evidence_hash"),
        ({"result_id": "r-2"}, "evidence_hash"),
        ({"rows_hash": ZEROS}, "rows_hash"),
        ({"rows_chain": ZEROS}, "rows_chain"),
        ({"row_count": 1}, "rows_hash"),
        ({"row_count": 1}, "rows_chain"),
        ({"row_count": 1}, "sampling"),
        ({"event_count": 1}, "sampling"),
        ({"event_count": 1, "row_count": 1}, "sampling"),
        ({"hub_id": ZEROS}, "checkpoint"),
        ({"profile_id": ZEROS}, "checkpoint"),
        ({"searched": ()}, "searched"),
    ],
)
def test_names_the_claim_that_a_changed_digest_breaks(
    log: Any, package: Package, changes: dict[str, Any], claim: str
) -> None:
    changed = replace(package, digest=replace(package.digest, **changes), result=None)
    assert claim in named(check(changed, query_proven.trust_of(log)), ClaimState.FAILED)


@pytest.mark.parametrize("field", ["checkpoint_id", "log_root"])
def test_refuses_a_digest_up_to_another_checkpoint(log: Any, package: Package, field: str) -> None:
    spoken = replace(package.digest.checkpoint, **{field: ZEROS})
    changed = replace(package, digest=replace(package.digest, checkpoint=spoken), result=None)
    assert "checkpoint" in named(check(changed, query_proven.trust_of(log)), ClaimState.FAILED)


@pytest.mark.parametrize("changes", [{"mmr_root": ZEROS}, {"from_seq": 2}, {"to_seq": 2}])
def test_refuses_a_range_without_a_reason(
    log: Any, package: Package, changes: dict[str, Any]
) -> None:
    first, *rest = package.digest.searched
    assert first.to_seq > 2
    searched = (replace(first, unread=0, **changes), *rest)
    changed = replace(package, digest=replace(package.digest, searched=searched), result=None)
    assert "searched" in named(check(changed, query_proven.trust_of(log)), ClaimState.FAILED)


def test_refuses_a_witness_from_outside_of_what_was_searched(
    small_log: Any, a_descriptor: Any
) -> None:
    asked = a_descriptor(filter={"time": {"from": "2023-11-14T22:13:40Z"}}, evidence=FULL)
    package = query_proven.package_of(small_log, asked, records=False)
    searched = tuple(
        replace(searched, from_seq=searched.to_seq + 1, unread=0)
        for searched in package.digest.searched
    )
    package = replace(package, digest=replace(package.digest, searched=searched))
    assert "witnesses" in named(check(package, query_proven.trust_of(small_log)), ClaimState.FAILED)


def test_refuses_rows_that_are_not_the_aggregate_of_their_events(
    log: Any, a_descriptor: Any
) -> None:
    package = query_proven.package_of(
        log, a_descriptor(evidence=FULL, aggregate=COUNTS), records=False
    )
    assert isinstance(package.rows, tuple)
    rows = ({**package.rows[0], "count": 99}, *package.rows[1:])
    hashed = rows_hash(rows)
    digest = replace(package.digest, rows_hash=hashed.rows_hash, rows_chain=hashed.chain)
    verdict = check(replace(package, rows=rows, digest=digest), query_proven.trust_of(log))
    assert named(verdict, ClaimState.FAILED) == {"rows_witnessed"}


def test_refuses_a_row_that_its_event_does_not_say_with_all_hashes_made_again(
    log: Any, a_descriptor: Any
) -> None:
    package = query_proven.package_of(log, a_descriptor(evidence=FULL), records=False)
    assert isinstance(package.rows, tuple)
    rows = ({**package.rows[0], "origin": "elsewhere"}, *package.rows[1:])
    hashed = rows_hash(rows)
    digest = replace(package.digest, rows_hash=hashed.rows_hash, rows_chain=hashed.chain)
    verdict = check(replace(package, rows=rows, digest=digest), query_proven.trust_of(log))
    assert named(verdict, ClaimState.FAILED) == {"rows_witnessed"}


def test_refuses_witnesses_in_another_order(log: Any, package: Package) -> None:
    first, second, *rest = package.witnesses
    swapped = (replace(second, index=first.index), replace(first, index=second.index), *rest)
    verdict = check(replace(package, witnesses=swapped), query_proven.trust_of(log))
    assert "witnesses" in named(verdict, ClaimState.FAILED)


def test_refuses_a_record_of_another_kind(log: Any, package: Package) -> None:
    event = query_proven.event("query.other", package.descriptor.encode())
    entry = log.append("record/query/requests", 1_700_009_003, event)
    raw, receipt, body_key = log.pairs[entry.stream, entry.seq]
    request = RecordedMessage(msg=raw, receipt=receipt, body_key=body_key, inclusion=None)
    verdict = check(replace(package, request=request), query_proven.trust_of(log))
    assert "request_recorded" in named(verdict, ClaimState.FAILED)


def test_refuses_a_checkpoint_that_the_hub_did_not_sign(log: Any, package: Package) -> None:
    forged = package.checkpoint.signed(SigningKey(h(b"another hub")))
    digest = replace(package.digest, checkpoint=SpokenUpTo.of(forged))
    verdict = check(replace(package, checkpoint=forged, digest=digest), query_proven.trust_of(log))
    assert "checkpoint" in named(verdict, ClaimState.FAILED)


def test_refuses_a_later_checkpoint_that_the_hub_did_not_sign(log: Any, package: Package) -> None:
    assert package.later_checkpoint is not None
    forged = package.later_checkpoint.signed(SigningKey(h(b"another hub")))
    verdict = check(replace(package, later_checkpoint=forged), query_proven.trust_of(log))
    assert {"request_in_log", "result_in_log"} <= named(verdict, ClaimState.FAILED)


def test_refuses_an_identity_that_is_not_signed(log: Any, package: Package) -> None:
    verdict = check(replace(package, hub_signature=bytes(64)), query_proven.trust_of(log))
    assert "hub" in named(verdict, ClaimState.FAILED)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("aggregate", [None, COUNTS])
def test_every_changed_byte_is_refused_or_changes_nothing(
    new_recorded_log: Any, a_descriptor: Any, long_factor: int,
    aggregate: Any,
) -> None:  # fmt: skip
    log = new_recorded_log(query_histories.history(5, 2))
    asked = a_descriptor(evidence=FULL, projection=["receipt_id", "origin"], aggregate=aggregate)
    raw = query_proven.package_of(log, asked).encode()
    before = check_bytes(raw, query_proven.trust_of(log))
    assert before.failed == ()
    draw = random.Random("flips")
    places = range(len(raw)) if long_factor > 1 else draw.sample(range(len(raw)), 400)
    unnoticed = [
        at for at in places if not is_noticed(raw, at, draw, before, query_proven.trust_of(log))
    ]
    anchor = raw.index(b'"anchors"'), raw.index(b'"checkpoint"')
    assert all(anchor[0] < at < anchor[1] for at in unnoticed)


def is_noticed(
    raw: bytes, at: int, draw: random.Random, before: PackageVerdict, trust: PackageTrust
) -> bool:
    """Whether the change of one byte is refused; if not, no claim may have changed."""
    changed = bytearray(raw)
    changed[at] ^= draw.randrange(1, 256)
    try:
        after = check_bytes(bytes(changed), trust)
    except VeenError:
        return True
    assert after.failed or after == before
    return bool(after.failed)


@given(st.data())
def test_any_bytes_are_a_verdict_or_a_named_error(small_package: bytes, data: Any) -> None:
    at = data.draw(st.integers(0, len(small_package)))
    end = data.draw(st.integers(at, len(small_package)))
    junk = data.draw(st.one_of(st.binary(max_size=20), st.sampled_from(JUNK)))
    try:
        verdict = check_bytes(
            small_package[:at] + junk + small_package[end:], PackageTrust(hub_id=bytes(32))
        )
    except VeenError:
        return
    assert verdict.failed


JUNK = (b"null", b"{}", b"[]", b'""', b"[" * 10**5, b"0", b"-1", b"1e999", b"NaN", b'"\\ud800"')


@pytest.fixture(scope="module")
def small_package(new_recorded_log: Any, a_descriptor: Any) -> bytes:
    package = query_proven.package_of(
        new_recorded_log(query_histories.history(6, 3)), a_descriptor(evidence=FULL)
    )
    return bytes(package.encode())


@pytest.mark.parametrize("junk", [b"", b"[" * 10**6, b'{"format":"veen.query-proof"}', *JUNK])
def test_refuses_what_is_no_package(junk: bytes) -> None:
    with pytest.raises(Malformed):
        Package.decode(junk)


def test_refuses_a_package_beyond_the_size_allowed(package: Package) -> None:
    with pytest.raises(Malformed, match="expected at most 1000 bytes"):
        Package.decode(package.encode(), max_bytes=1000)
