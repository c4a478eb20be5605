"""Files of our own copy that change behind the importer's back (I21)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.bridge import importing_zone


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
    import_zone: Any, change: Callable[[Path, Any], None]
) -> None:
    def alter() -> None:
        (volume,) = import_zone.import_dir.staging.rglob("v001.agv")
        change(volume, import_zone)

    medium, watch = import_zone.medium(1, 3), importing_zone.when_it_begins("reading", alter)
    (outcome,) = import_zone.run(medium, watch=watch).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.SIG/BUNDLE_ID")
    import_zone.check_now([])


def test_i21_a_file_that_changes_once_it_was_read_for_good_changes_nothing(
    import_zone: Any,
) -> None:
    altered: list[Path] = []

    def random(size: int) -> bytes:
        """Its first use after the bags were moved is for the audit entry before the events."""
        if not altered and "import.begin" not in import_zone.kinds():
            for volume in import_zone.import_dir.root.glob("committing/*/*/data/v001.agv"):
                flip(volume, import_zone)
                altered.append(volume)
        return os.urandom(size)

    runtime = replace(import_zone.around(), random=random)
    assert import_zone.states(import_zone.medium(1, 3), runtime=runtime) == ["imported"]
    assert len(altered) == 1
    import_zone.check([1, 2, 3])


def test_i21_a_file_that_changes_between_a_crash_and_its_recovery_is_not_imported(
    import_zone: Any, import_runner: Any
) -> None:
    medium = import_zone.medium(1, 3)
    assert import_runner.run(import_zone, medium, point=["hand_over", "before", 1])[0] < 0
    (volume,) = import_zone.import_dir.root.glob("committing/*/*/data/v001.agv")
    flip(volume, import_zone)
    bad, sound = import_zone.run().outcomes
    assert (bad.state.value, bad.code) == ("quarantined", "E.SIG/VOLUME")
    # What came still lies in the inbox as it came, and is looked at anew.
    assert sound.state.value == "imported"
    import_zone.check([1, 2, 3])
