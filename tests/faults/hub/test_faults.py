"""Every file operation of start, commit, seal and stop fails once, in every way it can fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.long_form import LONG
from support.paths import SUPPORT

pytestmark = pytest.mark.e2e

# Killed after an operation is killed before the next, with fewer acknowledged.
KINDS = ("kill", "eio", "enospc", "short", *(("killed-after",) if LONG else ()))
SCRIPT = SUPPORT / "hub" / "run_faults.py"


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_acknowledged_is_lost_or_forked(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, kind], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *wrong, summary = done.stdout.splitlines()
    assert wrong == []
    runs, operations, writes, kills = map(int, re.findall(r"\d+", summary))
    of_writes = kind in {"enospc", "short"} and not LONG
    struck = writes if of_writes else operations
    assert runs == struck or (not LONG and runs >= struck // 8)
    assert operations > 250
    assert writes > 50
    assert kills > 10 * runs or not LONG
