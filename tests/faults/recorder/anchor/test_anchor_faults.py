"""Every file operation of keeping and anchoring a checkpoint fails once, in every way it can."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.long_form import LONG
from support.paths import SUPPORT

# A killed process loses nothing that it has written, synced or not, so no disk is needed.
MEMORY = Path("/dev/shm")
# To die after an operation is to die before the next, but for the last one.
KINDS = ["kill", "short", "eio", "enospc", *(["killed-after"] if LONG else [])]
SCRIPT = SUPPORT / "recorder" / "run_anchor_faults.py"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_promised_is_kept(kind: str, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as folder:
        command = [sys.executable, str(SCRIPT), folder, kind]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *wrong, summary = done.stdout.splitlines()
    assert wrong == []
    assert int(re.findall(r"\d+", summary)[0]) > 60
