"""The same events exported again by the command, in any surroundings: the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.long_form import LONG

COUNT = 100 if LONG else 4
ZONES, TONGUES = ("UTC", "Pacific/Kiritimati", "America/St_Johns"), ("C", "tr_TR.UTF-8", "C.UTF-8")


def reexport(number: int, config: Path, medium: Path, requested: str) -> dict[str, str]:
    runtime = {
        "PYTHONHASHSEED": str(number * 7919 % 2**32),
        "TZ": ZONES[number % 3],
        "LANG": TONGUES[number % 3],
        "LC_ALL": TONGUES[number // 3 % 3],
        "PATH": os.environ["PATH"],
    }
    command = [sys.executable, "-m", "cli.main", "bridge", "export", "--config", str(config)]
    command += ["--medium", str(medium), "--range", requested, "--operator", f"operator {number}"]
    run = subprocess.run(command, env=runtime, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {
        str(path.relative_to(medium)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (medium / "agb0").rglob("*")
        if path.is_file()
    }


@pytest.mark.timeout(7200 if COUNT > 4 else 300)
def test_an_export_is_the_same_in_any_environment(
    fresh: Any, new_medium: Callable[[], Path]
) -> None:
    done, *_ = fresh.export(new_medium())
    entry = done.entry
    expected = f"{entry.stream}={entry.from_seq}..{entry.to_seq}"
    config, first = fresh.toml(), done.bags[0].parents[1]
    due = {
        str(path.relative_to(first)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in done.bags[0].rglob("*")
        if path.is_file()
    }
    for number in range(1, COUNT):
        assert reexport(number, config, new_medium(), expected) == due
