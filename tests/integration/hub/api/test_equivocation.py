"""A report of two receipts that cannot both be true is kept as evidence."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from hub.storage import identity
from veen.digest import h
from veen.wire.api import EquivocationReport, EquivocationResponse, ErrorEnvelope


@pytest.fixture(scope="module")
def receipt(hub: Any) -> Any:
    return hub.writer("alice", "record/a").write(1, 1)[0]


@pytest.fixture(scope="module")
def forked(hub: Any, receipt: Any) -> Any:
    """The receipt of a hub that says otherwise elsewhere."""
    key = identity.load(hub.datadir).current
    return replace(receipt, leaf_hash=bytes(32), mmr_root=bytes(32)).signed(key)


def report(hub: Any, first: Any, second: Any) -> Any:
    body = EquivocationReport(first=first, second=second)
    return hub.post("/tooling/report_equivocation", body)


def test_a_proven_equivocation_is_kept_once_and_logged(
    hub: Any, receipt: Any, forked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer = report(hub, receipt, forked)
    evidence_id = EquivocationResponse.decode(answer.data).evidence_id
    assert report(hub, forked, receipt).data == answer.data
    (stored,) = hub.datadir.evidence.iterdir()
    assert h(stored.read_bytes()) == evidence_id
    equivocation_report = EquivocationReport.decode(stored.read_bytes())
    assert {equivocation_report.first, equivocation_report.second} == {receipt, forked}
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL] * 2


def test_one_message_at_two_places_is_kept_too(hub: Any, receipt: Any) -> None:
    key = identity.load(hub.datadir).current
    again = replace(receipt, stream_seq=9, mmr_root=bytes(32)).signed(key)
    assert report(hub, receipt, again).status_code == 200


def test_refuses_what_proves_nothing(hub: Any, receipt: Any, forked: Any) -> None:
    other_place = hub.writer("bob", "record/b").write(1, 1)[0]
    forged = replace(forked, hub_sig=bytes(64))
    for pair in ((receipt, receipt), (receipt, other_place), (receipt, forged)):
        answer = report(hub, *pair)
        assert (answer.status_code, ErrorEnvelope.decode(answer.data).code) == (
            400,
            "E.BAD_REQUEST",
        )
