"""What does not belong is counted with its place; it is neither an error nor silent."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.overlay import overlay_histories
from veen.errors import Malformed
from veen.overlay.overlay import (
    MAX_LISTED_PLACES,
    Event,
    Overlay,
    Skipped,
    SkippedPlaces,
    fold_events,
)
from veen.overlay.snapshot import OVERLAYS, overlay_named

ID = bytes(range(32))
PAID = {"operation_type": "t", "operation_args": 1, "payer_account": ID, "payee_account": ID}
RECORD = {
    "subject_id": "s", "principal_id": ID, "event_type": "t", "event_time": 1, "origin": "o",
    "payload": 1,
}  # fmt: skip
overlays = pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay.name)


@overlays
def test_a_message_of_another_schema_is_counted_as_foreign(
    overlay: Overlay[Any], an_event: Callable[..., Event]
) -> None:
    folded = overlay.lift(an_event(bytes(32), {"key": 1}, stream_seq=7))
    assert folded.state == overlay.empty().state
    assert folded.skipped == Skipped(foreign=SkippedPlaces(count=1, first=(7,)))


@overlays
def test_a_message_that_was_not_opened_is_counted_as_such(overlay: Overlay[Any]) -> None:
    folded = overlay.lift(Event.unopened(stream_seq=9, hub_ts=1, client_id=ID))
    assert folded.state == overlay.empty().state
    assert folded.skipped == Skipped(unopened=SkippedPlaces(count=1, first=(9,)))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        pytest.param("lww.map", {"key": b"k", "ts": 1}, id="no value"),
        pytest.param("lww.map", {"key": "k", "ts": 1, "value": b""}, id="key as text"),
        pytest.param("lww.map", {"key": b"k", "ts": True, "value": b""}, id="ts as bool"),
        pytest.param("lww.map", {"key": b"k", "ts": -1, "value": b""}, id="ts below zero"),
        pytest.param("lww.map", {"key": b"k", "ts": None, "value": b""}, id="ts null"),
        pytest.param("lww.map", {"key": b"k", "ts": 1, "value": b"", "x": 1}, id="unknown key"),
        pytest.param("lww.map", {1: b"k", 2: 1, 3: b""}, id="keys as integers"),
        pytest.param("lww.map", b"", id="empty"),
        pytest.param("orset", {"id": ID[1:], "elem": b""}, id="short id"),
        pytest.param("orset", {"id": ID, "elem": b"", "tomb": []}, id="add and remove"),
        pytest.param("orset", {"tomb": [ID, ID + b"x"]}, id="long tomb"),
        pytest.param("orset", {"tomb": ID}, id="tomb without array"),
        pytest.param("orset", {}, id="neither add nor remove"),
        pytest.param("counter.map", {"shard": ID, "delta": -1}, id="delta below zero"),
        pytest.param("counter.map", {"shard": ID[1:], "delta": 1}, id="short shard"),
        pytest.param("wallet.ledger", PAID, id="no amount"),
        pytest.param("wallet.ledger", PAID | {"amount": -1}, id="amount below zero"),
        pytest.param("wallet.ledger", PAID | {"amount": 1, "currency_code": ""}, id="no name"),
        pytest.param("wallet.ledger", PAID | {"amount": None}, id="amount null"),
        pytest.param("wallet.ledger", PAID | {"amount": 1, "ttl_seconds": "60"}, id="ttl as text"),
        pytest.param("recorder.statistics", RECORD | {"hub_commit_seq": 1}, id="hub's field"),
        pytest.param("recorder.statistics", RECORD | {"origin": None}, id="origin null"),
        pytest.param("recorder.statistics", RECORD | {"event_time": "now"}, id="time as text"),
    ],
)
def test_a_body_that_its_schema_does_not_allow_is_counted_as_malformed(
    name: str, body: Any, an_event: Callable[..., Event]
) -> None:
    overlay = overlay_named(name)
    folded = overlay.lift(an_event(overlay_histories.SCHEMAS[name], body, stream_seq=5))
    assert folded.state == overlay.empty().state
    assert folded.skipped == Skipped(malformed=SkippedPlaces(count=1, first=(5,)))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("a3 636b6579 416b 627473 01 6576616c7565 40", id="keys out of order"),
        pytest.param("a4 627473 01 627473 01 636b6579 416b 6576616c7565 40", id="key twice"),
        pytest.param("a3 627473 1801 636b6579 416b 6576616c7565 40", id="overlong integer"),
        pytest.param("a3 627473 01 636b6579 416b 6576616c7565 40 00", id="trailing byte"),
        pytest.param("bf 627473 01 636b6579 416b 6576616c7565 40 ff", id="indefinite length"),
        pytest.param("a3 627473 01 636b6579 416b 6576616c7565", id="cut short"),
    ],
)
def test_a_body_in_another_encoding_is_counted_as_malformed(
    raw: str, an_event: Callable[..., Event]
) -> None:
    folded = overlay_named("lww.map").lift(an_event(overlay_histories.LWW, bytes.fromhex(raw)))
    assert folded.skipped.malformed.count == 1


def test_the_one_encoding_of_a_body_is_read(an_event: Callable[..., Event]) -> None:
    raw = bytes.fromhex("a3 627473 01 636b6579 416b 6576616c7565 40")
    assert overlay_named("lww.map").lift(an_event(overlay_histories.LWW, raw)).skipped == Skipped()


@overlays
@given(data=st.data(), seed=st.integers(0, 10**6))
def test_no_body_makes_an_overlay_raise(
    overlay: Overlay[Any],
    an_event: Callable[..., Event],
    data: st.DataObject,
    seed: int,
) -> None:
    (schema,) = overlay.schemas
    body = overlay_histories.cbor(overlay_histories.WRITERS[schema](Random(seed)))
    at = data.draw(st.integers(0, len(body)))
    changed = body[:at] + data.draw(st.binary(max_size=3)) + body[at + 1 :]
    folded = overlay.lift(an_event(schema, changed))
    assert folded.skipped.malformed.count in {0, 1}
    if folded.skipped.malformed.count:
        assert folded.state == overlay.empty().state


def test_an_argument_of_the_application_may_be_any_item(an_event: Callable[..., Event]) -> None:
    for args in (None, -5, [{"a": -1}], "text"):
        body = PAID | {"amount": 1, "operation_args": args, "metadata": None}
        folded = overlay_named("wallet.ledger").lift(an_event(overlay_histories.PAID, body))
        assert folded.state.operations == 1


def test_only_the_first_places_are_kept_and_all_are_counted(
    an_event: Callable[..., Event],
) -> None:
    overlay = overlay_named("lww.map")
    events = [an_event(bytes(32), b"", stream_seq=seq) for seq in range(1, 101)]
    places = fold_events(overlay, events).skipped.foreign
    assert places == SkippedPlaces(count=100, first=tuple(range(1, MAX_LISTED_PLACES + 1)))


@pytest.mark.parametrize(
    "places",
    [
        SkippedPlaces(count=2, first=(1,)),
        SkippedPlaces(count=1, first=()),
        SkippedPlaces(count=2, first=(2, 1)),
    ],
)
def test_places_that_do_not_fit_their_count_have_no_encoding(places: SkippedPlaces) -> None:
    with pytest.raises(Malformed):
        places.encode()
