"""Snapshots of folded states: what holds, and the first field that does not (profiles, 7.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from random import Random
from typing import Any

import pytest

from recorder.folds import snapshots
from recorder.folds.cache import NoCache
from recorder.folds.log import ArchivedLog, NotArchived
from recorder.folds.snapshots import Expected
from support.overlay import overlay_histories, overlay_oracle
from veen.digest import h
from veen.overlay.snapshot import SCHEMA, StateCheckpoint
from veen.wire.body import AnyItem

NAME = "wallet.ledger"
UPTO = 100
ANY = Expected()


@pytest.fixture
def claim(archived: Any) -> StateCheckpoint:
    """Of the whole ledger after 100 messages."""
    result = archived.fold(archived.job("ledger", NAME, block=8, to_seq=UPTO))
    checkpoint: StateCheckpoint = result.prefix().checkpoint(result.label)
    return checkpoint


def verdict(archived: Any, claim: StateCheckpoint, expected: Expected = ANY) -> Any:
    order = archived.job("ledger", NAME, block=8)
    return snapshots.verify(claim, expected, order, order.run.to_seq, archived.fold)


def test_the_hash_is_that_of_the_naive_state(archived: Any, claim: StateCheckpoint) -> None:
    says = [
        item for item in archived.hub.detail["ledger"][:UPTO]
        if item.schema == overlay_histories.SCHEMAS[NAME] and item.says is not None
    ]  # fmt: skip
    state = overlay_histories.cbor(overlay_oracle.ledger(says))
    assert claim.state_hash == sha256(b"veen/state-wallet.ledger\x00" + state).digest()


def test_the_root_is_that_of_the_receipt_at_its_place(
    archived: Any, claim: StateCheckpoint
) -> None:
    source = archived.source(archived.job("ledger", NAME, block=8))
    assert claim.mmr_root == source.log.entry(UPTO).receipt.mmr_root


def test_a_snapshot_of_the_log_holds(archived: Any, claim: StateCheckpoint) -> None:
    assert verdict(archived, claim).document()["consistent"] is True
    expected = Expected(state_class=NAME, state_id=claim.state_id, upto_seq=UPTO)
    assert verdict(archived, claim, expected).mismatch is None


def test_a_snapshot_of_one_account_holds(archived: Any) -> None:
    result = archived.fold(archived.job("ledger", NAME, block=8))
    account = result.opened().state.accounts[0].account
    assert verdict(archived, result.prefix().checkpoint(account)).mismatch is None
    none = result.prefix().checkpoint(h(b"nobody"))
    assert verdict(archived, replace(none, state_id=account)).mismatch.field == "state_hash"


@pytest.mark.parametrize(
    ("change", "expected", "field"),
    [
        ({"state_class": "orset"}, ANY, "state_hash"),
        ({"state_class": "orset"}, Expected(state_class=NAME), "state_class"),
        ({"state_class": "chess"}, ANY, "state_class"),
        ({"state_id": h(b"other")}, ANY, "state_hash"),
        ({"state_id": h(b"other")}, Expected(upto_seq=UPTO), "state_hash"),
        ({"upto_stream_seq": UPTO + 1}, ANY, "mmr_root"),
        ({"upto_stream_seq": UPTO + 1}, Expected(upto_seq=UPTO), "upto_stream_seq"),
        ({"upto_stream_seq": 151}, ANY, "upto_stream_seq"),
        ({"upto_stream_seq": 2**64 - 1}, ANY, "upto_stream_seq"),
        ({"mmr_root": h(b"other")}, ANY, "mmr_root"),
        ({"mmr_root": h(b"other"), "state_hash": h(b"other")}, ANY, "mmr_root"),
        ({"state_hash": h(b"other")}, ANY, "state_hash"),
    ],
)
def test_the_first_field_that_does_not_hold_is_named(
    archived: Any,
    claim: StateCheckpoint,
    change: dict[str, Any],
    expected: Expected,
    field: str,
) -> None:
    document = verdict(archived, replace(claim, **change), expected).document()
    assert document["consistent"] is False
    assert document["first_mismatch"]["field"] == field


def test_another_state_id_than_expected_is_named(archived: Any, claim: StateCheckpoint) -> None:
    result = verdict(archived, claim, Expected(state_id=h(b"other")))
    assert result.mismatch.field == "state_id"


def test_a_snapshot_of_a_log_that_was_tampered_with_since_is_not_vouched_for(
    archived: Any, claim: StateCheckpoint
) -> None:
    other = archived.fold(archived.job("ledger", NAME, block=8, to_seq=UPTO - 1))
    stale = replace(other.prefix().checkpoint(other.label), upto_stream_seq=UPTO)
    assert verdict(archived, stale).mismatch.field == "mmr_root"
    assert verdict(archived, claim).mismatch is None


def test_the_latest_snapshot_of_a_stream_is_found(
    archived: Any, claim: StateCheckpoint, a_signed_history: Callable[..., list[Any]]
) -> None:
    noise = a_signed_history(1, 30, NAME)
    first = replace(claim, metadata=AnyItem(b"\x01"))
    bodies = {
        5: first.encode(),
        12: claim.encode(),
        20: replace(claim, upto_stream_seq=9).encode(),
    }
    bodies[25] = b"\xff"
    messages = [
        replace(item, schema=SCHEMA, body=bodies[at]) if at in bodies else item
        for at, item in enumerate(noise)
    ]
    archived.hub.write("states", messages, Random(1))
    archived.push()
    job = archived.job("states", NAME, block=8)
    log = ArchivedLog(archived.archive, job.manifest, job.label, cache=NoCache(), block=8)
    reader = archived.hub.reader.open()
    expected = Expected(state_id=claim.state_id, upto_seq=UPTO)
    assert snapshots.find(log, reader, expected) == claim
    assert snapshots.find(log, reader, ANY).upto_stream_seq == 9
    with pytest.raises(NotArchived):
        snapshots.find(log, reader, Expected(upto_seq=10))
