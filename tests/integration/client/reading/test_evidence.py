"""Two receipts that cannot both be true are kept, reported, and end whatever met them."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.client import lying_hub, reading_support
from veen.client.log_head import store_evidence
from veen.client.reader import read
from veen.client.transport import Fork
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.receipt import Receipt
from veen.wire.api import EquivocationReport, ErrorEnvelope

NAME = "record/a"


@pytest.fixture
def session(dishonest_hub: Any, make_session: Callable[..., Any]) -> Any:
    reading_support.fill(
        dishonest_hub, dishonest_hub.log(NAME), 5, reading_support.Writer(b"alice")
    )
    return make_session(dishonest_hub.url)


@pytest.fixture
def first(dishonest_hub: Any, session: Any) -> Receipt:
    return Receipt.decode(dishonest_hub.log(NAME).pairs[2][1])


def other(hub: Any, receipt: Receipt, **changes: Any) -> Receipt:
    return replace(receipt, **changes).signed(hub.key)


@pytest.mark.parametrize("field", ["leaf_hash", "mmr_root"])
def test_two_histories_of_one_place_are_kept_and_reported(
    field: str, dishonest_hub: Any, session: Any, first: Receipt
) -> None:
    second = other(dishonest_hub, first, **{field: h(b"x")})
    fork = store_evidence(session, first, second)
    assert isinstance(fork, Fork)
    assert fork.evidence == session.root / f"evidence/equivocation-{first.label.hex()}-3.cbor"
    report = EquivocationReport.decode(fork.evidence.read_bytes())
    assert {report.first, report.second} == {first, second}
    assert dishonest_hub.reports == [replace(report, ver=None)]
    assert "stream_seq 3" in str(fork)
    assert "the fork was reported to the hub" in str(fork)


def test_only_the_owner_can_read_it(dishonest_hub: Any, session: Any, first: Receipt) -> None:
    path = store_evidence(session, first, other(dishonest_hub, first, mmr_root=h(b"x"))).evidence
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_one_message_at_two_places_is_evidence_too(
    dishonest_hub: Any, session: Any, first: Receipt
) -> None:
    fork = store_evidence(session, other(dishonest_hub, first, stream_seq=9), first)
    assert fork.evidence.name == f"equivocation-{first.label.hex()}-3.cbor"
    assert "stream_seq 3 and 9" in str(fork)


def test_the_same_pair_is_kept_once_whichever_way_round(
    dishonest_hub: Any, session: Any, first: Receipt
) -> None:
    second = other(dishonest_hub, first, mmr_root=h(b"x"))
    assert store_evidence(session, first, second).evidence == store_evidence(
        session, second, first
    ).evidence  # fmt: skip
    assert len(list((session.root / "evidence").iterdir())) == 1


def test_another_contradiction_at_the_place_is_kept_beside_it(
    dishonest_hub: Any, session: Any, first: Receipt
) -> None:
    for root in (h(b"x"), h(b"y"), h(b"y")):
        store_evidence(session, first, other(dishonest_hub, first, mmr_root=root))
    assert len(list((session.root / "evidence").iterdir())) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"hub_ts": 1_900_000_001},
        {"label": h(b"x"), "mmr_root": h(b"x")},
        {"stream_seq": 4, "leaf_hash": h(b"x")},
    ],
)
def test_receipts_that_can_both_be_true_are_no_evidence(
    change: dict[str, Any], dishonest_hub: Any, session: Any, first: Receipt
) -> None:
    with pytest.raises(Untrusted, match="do not contradict"):
        store_evidence(session, first, other(dishonest_hub, first, **change))
    assert not (session.root / "evidence").exists()


def test_what_the_hub_did_not_sign_is_no_evidence(session: Any, first: Receipt) -> None:
    forged = replace(first, mmr_root=h(b"x")).signed(SigningKey(h(b"forger")))
    for pair in ((first, forged), (forged, first)):
        with pytest.raises(Untrusted, match="not signed"):
            store_evidence(session, *pair)
    assert not (session.root / "evidence").exists()


def test_a_hub_that_takes_no_report_changes_nothing(
    dishonest_hub: Any, session: Any, first: Receipt
) -> None:
    refusal = ErrorEnvelope(code="E.FORBIDDEN", message="go away")
    dishonest_hub.lie = lambda path, _, answer: refusal if "report" in path else answer
    fork = store_evidence(session, first, other(dishonest_hub, first, mmr_root=h(b"x")))
    assert fork.evidence.exists()
    assert "did not accept the report (E.FORBIDDEN: go away)" in str(fork)


def the_fork(session: Any, hub: Any, **requested: Any) -> tuple[Path, Any]:
    before = session.state
    pairs = read(session, hub.labels(NAME), NAME, **requested)
    with pytest.raises(Fork) as caught:
        list(pairs)
    assert session.state == before
    return caught.value.evidence, EquivocationReport.decode(caught.value.evidence.read_bytes())


@pytest.mark.parametrize("from_seq", [1, 3, 5, 6])
@pytest.mark.parametrize("grown", [2, 9])
def test_a_reader_meets_a_forked_history_and_keeps_both_receipts(
    from_seq: int, grown: int, dishonest_hub: Any, session: Any
) -> None:
    list(read(session, dishonest_hub.labels(NAME), NAME))
    ours = dishonest_hub.log(NAME).receipt(5)
    reading_support.fill(
        dishonest_hub,
        lying_hub.fork(dishonest_hub, NAME, 3),
        grown,
        reading_support.Writer(b"mallory"),
    )
    _, stored = the_fork(session, dishonest_hub, from_seq=from_seq)
    assert {stored.first, stored.second} == {ours, dishonest_hub.log(NAME).receipt(5)}
    assert len(dishonest_hub.reports) == 1


def test_a_range_below_our_view_of_a_forked_history_is_found_too(
    dishonest_hub: Any, session: Any
) -> None:
    list(read(session, dishonest_hub.labels(NAME), NAME))
    reading_support.fill(
        dishonest_hub, lying_hub.fork(dishonest_hub, NAME, 1), 8, reading_support.Writer(b"mallory")
    )
    the_fork(session, dishonest_hub, to_seq=3)


def test_an_unlinked_receipt_must_stand_in_the_log_that_is_read(
    dishonest_hub: Any, session: Any
) -> None:
    log = dishonest_hub.log(NAME)
    list(read(session, dishonest_hub.labels(NAME), NAME, to_seq=2))
    wrong = other(dishonest_hub, log.receipt(4), leaf_hash=h(b"mine"))
    view = session.view(log.label, NAME, 0)
    session.keep(log.label, view.noted(wrong))
    _, stored = the_fork(session, dishonest_hub)
    assert {stored.first, stored.second} == {wrong, log.receipt(4)}


def test_our_own_message_at_another_place_is_found(dishonest_hub: Any, session: Any) -> None:
    log = dishonest_hub.log(NAME)
    list(read(session, dishonest_hub.labels(NAME), NAME, to_seq=2))
    elsewhere = other(dishonest_hub, log.receipt(4), stream_seq=5)
    session.keep(log.label, session.view(log.label, NAME, 0).noted(elsewhere))
    _, stored = the_fork(session, dishonest_hub)
    assert {stored.first, stored.second} == {elsewhere, log.receipt(4)}
