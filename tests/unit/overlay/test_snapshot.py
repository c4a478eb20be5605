"""State snapshots: made from a fold, verified against the log, the first mismatch named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from support.overlay import overlay_histories, overlay_oracle
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.overlay.fold import Fold, SeqRun
from veen.overlay.snapshot import (
    OVERLAYS,
    Prefix,
    StateCheckpoint,
    first_mismatch,
    overlay_named,
    verify,
)
from veen.wire.body import AnyItem

UPTO = 60


@pytest.fixture
def prefix_of(
    a_history: Callable[..., list[Any]], new_fold_log: Callable[..., Any], label: bytes
) -> Callable[..., Prefix[Any]]:
    def build(name: str, upto: int = UPTO) -> Prefix[Any]:
        log, overlay = new_fold_log(a_history(3, UPTO, name)), overlay_named(name)
        state = Fold(overlay, label, log, 8).over(SeqRun(1, upto)).state
        return Prefix(
            overlay=overlay, label=label, upto_seq=upto, mmr_root=log.roots[upto], state=state
        )

    return build


@pytest.mark.parametrize("name", [overlay.name for overlay in OVERLAYS])
def test_a_snapshot_of_the_whole_state_hashes_the_folds_bytes(
    name: str,
    prefix_of: Callable[..., Prefix[Any]],
    a_history: Callable[..., list[Any]],
    label: bytes,
) -> None:
    claim = prefix_of(name).checkpoint(label)
    schema = overlay_histories.SCHEMAS[name]
    detail = [m for m in a_history(3, UPTO, name) if m.schema == schema and m.says is not None]
    serialized = overlay_histories.cbor(overlay_oracle.FOLDS[name](detail))
    assert claim.state_hash == sha256(f"veen/state-{name}\x00".encode() + serialized).digest()
    verify(StateCheckpoint.decode(claim.encode()), prefix_of(name), label)


def test_a_snapshot_of_a_part_depends_on_that_part_alone(
    prefix_of: Callable[..., Prefix[Any]],
) -> None:
    prefix = prefix_of("wallet.ledger")
    mine, other = (overlay_histories.named("account", number) for number in (0, 1))
    claim = prefix.checkpoint(mine)
    rows = tuple(row for row in prefix.state.accounts if row.account != other)
    assert len(rows) < len(prefix.state.accounts)
    verify(claim, replace(prefix, state=replace(prefix.state, accounts=rows)), mine)
    assert claim.state_hash != prefix.checkpoint(other).state_hash


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"state_class": "orset"}, "state_class"),
        ({"upto_stream_seq": 59}, "upto_stream_seq"),
        ({"state_id": h(b"other")}, "state_id"),
        ({"mmr_root": h(b"other")}, "mmr_root"),
        ({"state_hash": h(b"other")}, "state_hash"),
    ],
)
def test_the_first_mismatch_is_named(
    prefix_of: Callable[..., Prefix[Any]], label: bytes, change: dict[str, Any], named: str
) -> None:
    prefix = prefix_of("lww.map")
    claim = replace(prefix.checkpoint(label), **change)
    mismatch = first_mismatch(claim, prefix, label)
    assert mismatch is not None
    assert mismatch.field == named
    assert mismatch.claimed != mismatch.computed
    with pytest.raises(Untrusted, match=f"^{named}: expected"):
        verify(claim, prefix, label)


def test_a_root_that_differs_is_named_before_a_hash_that_differs(
    prefix_of: Callable[..., Prefix[Any]], label: bytes
) -> None:
    prefix = prefix_of("lww.map")
    claim = replace(prefix.checkpoint(label), mmr_root=bytes(32), state_hash=bytes(32))
    mismatch = first_mismatch(claim, prefix, label)
    assert mismatch is not None
    assert mismatch.field == "mmr_root"


def test_a_snapshot_that_agrees_has_no_mismatch(
    prefix_of: Callable[..., Prefix[Any]], label: bytes
) -> None:
    prefix = prefix_of("counter.map")
    assert first_mismatch(prefix.checkpoint(label), prefix, label) is None


def test_an_earlier_state_does_not_verify_as_a_later_one(
    prefix_of: Callable[..., Prefix[Any]], label: bytes
) -> None:
    earlier, later = prefix_of("counter.map", 40), prefix_of("counter.map")
    moved = replace(later.checkpoint(label), state_hash=earlier.checkpoint(label).state_hash)
    mismatch = first_mismatch(moved, later, label)
    assert mismatch is not None
    assert mismatch.field == "state_hash"


def test_metadata_is_carried_and_not_judged(
    prefix_of: Callable[..., Prefix[Any]], label: bytes
) -> None:
    metadata = AnyItem(overlay_histories.cbor({"why": "month end"}))
    claim = prefix_of("orset").checkpoint(label, metadata)
    again = StateCheckpoint.decode(claim.encode())
    assert again.metadata == metadata
    verify(again, prefix_of("orset"), label)


@pytest.mark.parametrize(
    "change",
    [
        {"state_id": bytes(31)}, {"mmr_root": None}, {"state_hash": "text"}, {"upto_stream_seq": 0},
        {"upto_stream_seq": -1}, {"state_class": b"lww.map"}, {"more": 1},
    ],
)  # fmt: skip
def test_a_body_that_is_no_snapshot_is_refused(change: dict[str, Any]) -> None:
    body = {
        "state_id": bytes(32), "upto_stream_seq": 1, "mmr_root": bytes(32),
        "state_hash": bytes(32), "state_class": "lww.map",
    }  # fmt: skip
    assert StateCheckpoint.decode(overlay_histories.cbor(body)).encode() == overlay_histories.cbor(
        body
    )
    with pytest.raises(Malformed):
        StateCheckpoint.decode(overlay_histories.cbor(body | change))
