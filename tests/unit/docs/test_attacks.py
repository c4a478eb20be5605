"""The attacks that SECURITY.md lists each have a test that carries their number."""

from __future__ import annotations

import re

from support.paths import ROOT

ROW = re.compile(r"^\| (H[0-9]{2}) \|.*\| ([^|]*) \|$", re.MULTILINE)


def test_every_attack_has_a_test_of_its_number() -> None:
    rows = dict(ROW.findall((ROOT / "SECURITY.md").read_text()))
    assert sorted(rows) == [f"H{number:02d}" for number in range(1, 37)]
    for number, cell in rows.items():
        files = [ROOT / name for name in re.findall(r"`([^`]+)`", cell)]
        result = "".join(file.read_text() for file in files)
        assert f"test_{number.lower()}" in result, number
