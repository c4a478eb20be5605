"""H02: a retired hub key with the old identity document proves nothing about the present."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recorder.query.package import Package
from recorder.query.package_verify import ClaimOutcome, ClaimState, PackageVerdict, check
from support.cli import cli_binary
from support.recorder import query_histories, query_proven
from support.recorder.query_proven import RECORDER, trust_of
from support.recorder.recorded_log import HUB
from veen.crypto import SigningKey
from veen.digest import h
from veen.hub_identity import HubIdentity

NEXT = SigningKey(h(b"the hub's next key"))
OTHER = SigningKey(h(b"a key of the thief"))
RETIRED_AT = 1_000
"""Long before anything in the log."""


@pytest.fixture(scope="module")
def log(new_recorded_log: Callable[..., Any]) -> Any:
    history = query_histories.history(11, 6)
    return new_recorded_log([replace(item, is_event=True) for item in history])


@pytest.fixture(scope="module")
def package(log: Any, a_descriptor: Callable[..., Any]) -> Package:
    """All of it is signed by HUB, and it brings the identity in which HUB is current."""
    result: Package = query_proven.package_of(log, a_descriptor(evidence={"mode": "full"}))
    return result


@pytest.fixture(scope="module")
def rotated(log: Any) -> HubIdentity:
    result: HubIdentity = log.hub.rotated(HUB, NEXT.public, RETIRED_AT - 10, 10)
    return result


def detail(verdict: PackageVerdict, name: str) -> tuple[ClaimState, str]:
    return next((claim.state, claim.detail) for claim in verdict.claims if claim.name == name)


def test_h02_a_package_is_proven_only_by_an_identity_known_elsewhere(
    log: Any, package: Package
) -> None:
    assert check(package, trust_of(log)).outcome is ClaimOutcome.PROVEN
    alone = check(package, replace(trust_of(log), identity=None))
    assert (alone.outcome, alone.gaps) == (ClaimOutcome.UNPROVEN, ("hub_newest",))
    assert (alone.held("complete"), alone.document()["complete"]) == (True, False)
    assert alone.summary.endswith("completeness unproven: the hub's identity may be out of date")
    assert "identity 1 of hub" in alone.reason
    assert "a newer one" in alone.summary


def test_h02_a_retired_key_signs_no_present_history(
    log: Any, package: Package, rotated: HubIdentity
) -> None:
    result = check(package, replace(trust_of(log), identity=rotated))
    assert result.outcome is ClaimOutcome.FAILED
    assert detail(result, "checkpoint")[0] is ClaimState.FAILED
    state, words = detail(result, "hub_newest")
    assert (state, "identity 2 of hub" in words) == (ClaimState.HELD, True)


def test_h02_a_key_that_retired_after_all_of_it_still_verifies(log: Any, package: Package) -> None:
    later = log.hub.rotated(HUB, NEXT.public, 1_700_100_000, 10)
    assert check(package, replace(trust_of(log), identity=later)).outcome is ClaimOutcome.PROVEN


def test_h02_a_package_with_a_newer_identity_is_verified_by_it(log: Any, package: Package) -> None:
    later = log.hub.rotated(HUB, NEXT.public, 1_700_100_000, 10)
    newer = replace(package, hub=later, hub_signature=later.signature_by(NEXT))
    result = check(newer, trust_of(log))
    assert (result.outcome, "identity 2" in detail(result, "hub_newest")[1]) == (
        ClaimOutcome.PROVEN,
        True,
    )


def test_h02_a_rotation_that_a_thief_made_with_the_retired_key_is_refused(
    log: Any, package: Package, rotated: HubIdentity
) -> None:
    forged = log.hub.rotated(HUB, OTHER.public, 1_700_100_000, 10)
    thief = replace(package, hub=forged, hub_signature=forged.signature_by(OTHER))
    result = check(thief, replace(trust_of(log), identity=rotated))
    assert (result.outcome, detail(result, "hub")[0]) == (ClaimOutcome.FAILED, ClaimState.FAILED)


def test_h02_events_later_than_their_checkpoint_are_refused(log: Any, package: Package) -> None:
    """The thief dates the checkpoint back into the key's time, and not the events."""
    early = replace(package.checkpoint, created_at=1).signed(HUB)
    result = check(replace(package, checkpoint=early), trust_of(log))
    assert detail(result, "witnesses")[0] is ClaimState.FAILED


def test_h02_a_record_later_than_the_later_checkpoint_is_refused(
    log: Any, package: Package
) -> None:
    """The later checkpoint, too, may be dated back into the time of a retired key."""
    assert package.later_checkpoint is not None
    early = replace(package.later_checkpoint, created_at=package.checkpoint.created_at)
    result = check(replace(package, later_checkpoint=early.signed(HUB)), trust_of(log))
    assert detail(result, "result_in_log")[0] is ClaimState.FAILED
    assert result.outcome is ClaimOutcome.FAILED


def write_identity(path: Path, identity: HubIdentity, key: SigningKey) -> None:
    path.write_bytes(identity.encode())
    path.with_suffix(".sig").write_bytes(identity.signature_by(key))


def test_h02_the_command_remembers_the_newest_identity(
    log: Any, package: Package, rotated: HubIdentity, tmp_path: Path
) -> None:
    (tmp_path / "p.json").write_bytes(package.encode())
    write_identity(tmp_path / "old.cbor", log.hub, HUB)
    write_identity(tmp_path / "new.cbor", rotated, NEXT)
    base = ("query", "verify", "p.json", "--hub-id", log.hub.hub_id.hex(),
            "--recorder-id", RECORDER.hex(), "--json")  # fmt: skip

    def outcome(*words: str) -> tuple[int, str]:
        done = cli_binary.called(*base, *words, cwd=tmp_path)
        return done.code, json.loads(done.out)["outcome"]

    remembered = ("--known-hubs", "known")
    assert outcome() == (6, "unproven")
    assert outcome(*remembered) == (6, "unproven"), "a first identity is not learnt from a package"
    assert outcome(*remembered) == (6, "unproven")
    assert outcome("--hub-identity", "old.cbor", *remembered) == (0, "proven")
    assert outcome(*remembered) == (0, "proven")
    assert outcome("--hub-identity", "new.cbor", *remembered) == (3, "failed")
    assert outcome(*remembered) == (3, "failed"), "the newest one is remembered"
    assert outcome("--hub-identity", "old.cbor", *remembered) == (3, "failed")
    assert outcome("--hub-identity", "old.cbor") == (0, "proven"), "whoever knows no better"
