"""The same range and the same options give the same bytes, wherever and whenever."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from bridge.carrier.format import Packing, Preset
from support.bridge import bridge_world
from support.long_form import LONG
from support.paths import SUPPORT

COUNT = 1000 if LONG else 4
ZONES, TONGUES = ("UTC", "Pacific/Kiritimati", "America/St_Johns"), ("C", "tr_TR.UTF-8", "C.UTF-8")


def reexport(number: int) -> str:
    runtime = {
        "PYTHONHASHSEED": str(number * 7919 % 2**32),
        "TZ": ZONES[number % 3],
        "LANG": TONGUES[number % 3],
        "LC_ALL": TONGUES[number // 3 % 3],
        "PATH": os.environ["PATH"],
    }
    command = [sys.executable, "-B", str(SUPPORT / "bridge" / "reexport.py")]
    run = subprocess.run(command, env=runtime, capture_output=True, text=True, check=True)
    return run.stdout


def test_a_carrier_is_the_same_in_any_environment() -> None:
    first = reexport(0)
    assert len(first.splitlines()) > 25
    assert {reexport(number) for number in range(1, COUNT)} == {first}


def test_cutting_it_otherwise_does_not_change_the_bundle(
    carrier_factory: Any, grown_world: Any
) -> None:
    raw = grown_world.bundle(2, 8)
    packings = [Preset.CD.packing(), Packing(volume_bytes=700), Packing(volume_bytes=950, parity=3)]
    result = [
        carrier_factory.check(carrier_factory.carry(raw, packing)).bundle.header
        for packing in packings
    ]
    assert len({item.bundle_id for item in result}) == 1
    assert all(item == result[0] for item in result)


def test_exporting_a_part_again_gives_the_same_bytes() -> None:
    young, old = bridge_world.World().grow(6), bridge_world.World().grow(9)
    assert young.bundle(2, 5) == old.bundle(2, 5, 6)
    assert young.bundle(2, 5) != old.bundle(2, 5)
