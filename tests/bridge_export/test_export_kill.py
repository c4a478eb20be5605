"""Exports that end at any operation: the run after them makes everything good, once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LONG = bool(os.environ.get("VEEN_TEST_LONG"))
MOST = 0 if LONG else 3
"""Runs for each kind of fault; 0 is one for every operation."""


@pytest.mark.timeout(7200 if LONG else 300)
def test_an_export_that_is_cut_anywhere_is_made_good_by_the_next(zone: Any) -> None:
    command = [sys.executable, str(HERE / "run_export_faults.py"), str(zone.folder)]
    kinds = ["kill", "killed-after", "eio", "enospc"]
    run = subprocess.run(
        [*command, str(zone.hub.port), str(MOST), *kinds],
        capture_output=True,
        text=True,
        check=False,
        timeout=7000 if LONG else 280,
    )
    *wrong, summary = run.stdout.splitlines() or ["nothing was printed"]
    assert wrong == [], run.stderr
    assert run.returncode == 0, run.stderr
    runs, _, _, operations, _ = summary.split()
    assert int(operations) > 100
    assert int(runs) >= (4 * int(operations) if LONG else 10)
