"""Bundles of several batches: counts, faults and progress are those of the whole bundle."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import pytest

from bridge.bundle import BundleEvent
from bridge.errors import CarrierFault, CarrierRefused
from bridge.verify import verify_bundle
from support.bridge import bridge_world
from veen.digest import h

LARGE = 70_000
"""Bytes of a body, two of which fill a batch."""


def test_batches_are_counted_together_and_reported() -> None:
    world = bridge_world.World(body_bytes=LARGE).grow(2)
    world.grow(1, disclose=False).grow(1).grow(1, disclose=False)
    steps: list[tuple[int, int | None]] = []
    result = verify_bundle(
        BytesIO(world.bundle(2, 5)), bridge_world.TRUST, None,
        progress=lambda done, count: steps.append((done, count)),
    )  # fmt: skip
    assert len(result.survey.batches) == 2
    assert (result.with_metadata, result.unopened) == (4, 2)
    assert steps == [(2, 4), (4, 4)]


@pytest.mark.parametrize(
    ("faults", "named"),
    [
        ({0: "signature", 2: "signature"}, (CarrierFault.RECEIPT_SIG, 1)),
        ({0: "metadata", 2: "metadata"}, (CarrierFault.METADATA, 1)),
        ({0: "metadata", 1: "signature"}, (CarrierFault.RECEIPT_SIG, 2)),
        ({0: "metadata", 2: "signature"}, (CarrierFault.RECEIPT_SIG, 3)),
        ({2: "metadata"}, (CarrierFault.METADATA, 3)),
        ({1: "metadata", 0: "metadata"}, (CarrierFault.METADATA, 1)),
        ({1: "signature", 0: "signature"}, (CarrierFault.RECEIPT_SIG, 1)),
    ],
)
def test_names_the_first_fault_of_the_worst_kind_over_all_batches(
    faults: dict[int, str], named: tuple[CarrierFault, int]
) -> None:
    header, events, proof = bridge_world.parts(
        bridge_world.World(body_bytes=LARGE).grow(4).bundle(1, 4)
    )
    for at, fault in faults.items():
        event = BundleEvent.decode(events[at])
        if fault == "metadata":
            event = replace(event, body_key=h(b"key"))
        else:
            event = replace(event, receipt=bridge_world.unsigned(event.receipt))
        events[at] = event.encode()
    with pytest.raises(CarrierRefused) as refusal:
        verify_bundle(BytesIO(bridge_world.reseal(header, events, proof)), bridge_world.TRUST, None)
    assert (refusal.value.fault, refusal.value.seq) == named


def test_other_processes_come_to_the_same_end() -> None:
    world = bridge_world.World(body_bytes=3000).grow(150)
    raw = world.bundle(1, 150)
    alone = verify_bundle(BytesIO(raw), bridge_world.TRUST, None)
    assert len(alone.survey.batches) > 2
    assert verify_bundle(BytesIO(raw), bridge_world.TRUST, None, workers=2) == alone
    header, events, proof = bridge_world.parts(raw)
    events[120] = replace(BundleEvent.decode(events[120]), body_key=h(b"no")).encode()
    with pytest.raises(CarrierRefused) as refusal:
        verify_bundle(
            BytesIO(bridge_world.reseal(header, events, proof)), bridge_world.TRUST, None, workers=2
        )
    assert (refusal.value.fault, refusal.value.seq) == (CarrierFault.METADATA, 121)
