"""Exports that end at any operation: the run after them makes everything good, once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.bridge import online_zone
from support.long_form import LONG
from support.paths import SUPPORT

pytestmark = pytest.mark.e2e

KINDS = ("kill", "killed-after", "eio", "enospc")
# Every operation, in several zones: each export reads all that its zone has exported before.
SHARES = [((kind,), n, 8) for kind in KINDS for n in range(8)] if LONG else [(KINDS, 0, 97)]

SCRIPT = SUPPORT / "bridge" / "run_export_faults.py"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kinds", "first", "every"), SHARES)
def test_an_export_that_is_cut_anywhere_is_made_good_by_the_next(
    kinds: tuple[str, ...], first: int, every: int, tmp_path: Path
) -> None:
    with online_zone.running(tmp_path) as zone:
        run = subprocess.run(
            [sys.executable, SCRIPT, zone.folder, str(zone.hub.port),
             str(first), str(every), *kinds],
            capture_output=True, text=True, check=False, timeout=1700,
        )  # fmt: skip
    *wrong, summary = run.stdout.splitlines() or ["nothing was printed"]
    assert wrong == [], run.stderr
    assert run.returncode == 0, run.stderr
    runs, _, _, operations, _ = summary.split()
    assert int(operations) > 100
    assert int(runs) >= len(kinds) * (int(operations) // every)
