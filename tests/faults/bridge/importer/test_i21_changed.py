"""Files of our own copy that change behind the importer's back (I21)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.importer import examine
from bridge.importer.commit import BundleCommitter


def flip(volume: Path, _zone: Any) -> None:
    with volume.open("r+b") as file:
        file.seek(-300, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def break_framing(volume: Path, zone: Any) -> None:
    raw = volume.read_bytes()
    at = raw.index(zone.world.events[1].receipt)
    volume.write_bytes(raw[: at - 2] + b"\xff\xff" + raw[at:])


def cut(volume: Path, _zone: Any) -> None:
    os.truncate(volume, 2000)


def empty(volume: Path, _zone: Any) -> None:
    os.truncate(volume, 0)


@pytest.mark.parametrize("change", [flip, break_framing, cut, empty])
def test_i21_a_file_that_changes_after_it_was_verified_is_not_imported(
    zone: Any, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, Any], None]
) -> None:
    load = examine.load

    def altered(*given: Any) -> Any:
        (volume,) = zone.import_dir.staging.rglob("v001.agv")
        change(volume, zone)
        return load(*given)

    with monkeypatch.context() as patched:
        patched.setattr("bridge.importer.importer.load", altered)
        (outcome,) = zone.run(zone.medium(1, 3)).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.SIG/BUNDLE_ID")
    zone.check_now([])


def test_i21_a_file_that_changes_once_it_was_read_for_good_changes_nothing(
    zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over = BundleCommitter.hand_over

    def altered(committer: Any, *given: Any) -> None:
        (volume,) = zone.import_dir.root.glob("committing/*/*/data/v001.agv")
        flip(volume, zone)
        hand_over(committer, *given)

    with monkeypatch.context() as patched:
        patched.setattr(BundleCommitter, "hand_over", altered)
        assert zone.states(zone.medium(1, 3)) == ["imported"]
    zone.check([1, 2, 3])


def test_i21_a_file_that_changes_between_a_crash_and_its_recovery_is_not_imported(
    zone: Any, zygote: Any
) -> None:
    medium = zone.medium(1, 3)
    assert zygote.run(zone, medium, point=["hand_over", "before", 1])[0] < 0
    (volume,) = zone.import_dir.root.glob("committing/*/*/data/v001.agv")
    flip(volume, zone)
    bad, sound = zone.run().outcomes
    assert (bad.state.value, bad.code) == ("quarantined", "E.SIG/VOLUME")
    # What came still lies in the inbox as it came, and is looked at anew.
    assert sound.state.value == "imported"
    zone.check([1, 2, 3])
