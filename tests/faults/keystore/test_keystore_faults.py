"""Every file operation of keygen and rotation fails once, in every way it can fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import SUPPORT

SCRIPT = SUPPORT / "keystore" / "run_keystore_faults.py"


@pytest.mark.parametrize("kind", ["kill", "killed-after", "eio", "enospc", "short"])
@pytest.mark.parametrize("action", ["create", "rotate"])
def test_an_identity_is_whole_or_not_there(action: str, kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, action, kind],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *wrong, summary = done.stdout.splitlines()
    assert wrong == [], done.stderr
    runs, operations = map(int, re.findall(r"\d+", summary))
    assert runs == operations > 10
