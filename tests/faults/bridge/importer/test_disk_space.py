"""Whether there is room is looked at before a carrier is copied, and said in plain words."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.carrier.directory import BagPath
from bridge.carrier.format import Packing
from bridge.importer.staging import InsufficientSpace, check_signed, verify_space
from bridge.trust import TrustStore
from support.bridge import bridge_world

SPARE = 1 << 30


def with_free(patched: pytest.MonkeyPatch, size: int) -> None:
    patched.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=size, f_frsize=1))


@pytest.mark.parametrize("way", ["medium", "inbox"])
def test_a_carrier_for_which_there_is_no_room_is_not_copied_and_goes_in_later(
    import_zone: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    medium = import_zone.medium(1, 3)
    media: tuple[Path, ...] = (medium,)
    stored: list[str] = []
    import_zone.import_dir.create()
    if way == "inbox":
        (bag,) = medium.iterdir()
        bag.rename(import_zone.import_dir.inbox / "bag")
        media, stored = (), ["bag"]
    with monkeypatch.context() as patched:
        with_free(patched, SPARE)
        (outcome,) = import_zone.run(*media).outcomes
    assert (outcome.state.value, outcome.code) == ("incomplete", "NO_ROOM")
    assert f"{SPARE} beyond them (reserve_bytes), got {SPARE}; free disk space" in outcome.detail
    assert import_zone.files("inbox") == stored
    assert import_zone.kinds() == ["import.failed"]
    assert import_zone.states(*media) == ["imported"]
    import_zone.check([1, 2, 3])


def test_what_is_unpacked_and_scanned_needs_room_too(
    import_zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium = import_zone.carry(
        import_zone.bundle(1, 50), Packing(volume_bytes=1 << 20, compress=True)
    )
    plain = len(import_zone.bundle(1, 50))
    (bag,) = medium.iterdir()
    volume = next(bag.rglob("v001.agv")).stat().st_size
    import_zone.write_settings(importing='scan = ["/bin/true"]')
    import_zone.import_dir.create()
    settings = import_zone.settings.importing
    with_free(monkeypatch, SPARE + 2 * volume + 2 * plain)
    signed = check_signed(BagPath.of(bag), TrustStore.read(import_zone.settings.trust), 1 << 30)
    verify_space(settings, [signed], copies=2)
    with_free(monkeypatch, SPARE + 2 * volume + 2 * plain - 1)
    with pytest.raises(InsufficientSpace):
        verify_space(settings, [signed], copies=2)


def test_a_carrier_that_claims_to_be_huge_is_judged_by_what_it_is(import_zone: Any) -> None:
    """The claim of an unsigned file keeps nothing from being looked at."""
    medium = import_zone.carry(
        import_zone.bundle(1, 3), Packing(volume_bytes=1 << 20, compress=True)
    )
    (bag,) = medium.iterdir()
    carrier = bridge_world.carrier_of(bag)
    assert carrier.compression is not None
    lying = replace(carrier.compression, plain_len=1 << 60)
    bridge_world.resign(bag, replace(carrier, compression=lying))
    (outcome,) = import_zone.run(medium).outcomes
    assert outcome.code == "E.SIZE/BUNDLE_SIZE"
    import_zone.check([])
