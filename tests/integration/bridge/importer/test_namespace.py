"""The whole importing zone in a network namespace that has nothing but loopback (O8)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.paths import SUPPORT

SCRIPT = SUPPORT / "bridge" / "namespace_process.py"


def _refusal() -> str:
    """Why no namespace can be made here; empty where one can."""
    run = subprocess.run(
        ["unshare", "--map-root-user", "--net", "ip", "link", "set", "lo", "up"],
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stderr.strip() if run.returncode else ""


@pytest.fixture(scope="module")
def can_unshare() -> None:
    try:
        why = _refusal()
    except FileNotFoundError as error:
        why = f"no program {error.filename}"
    if why:
        pytest.skip(f"no network namespace can be made here: {why}")


def test_o8_hub_import_and_rebuild_need_no_network_but_loopback(
    can_unshare: None, tmp_path: Path
) -> None:
    command = ["unshare", "--map-root-user", "--net", sys.executable, str(SCRIPT), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert run.returncode == 0, run.stderr[-3000:]
    document: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    assert document["interfaces"] == ["lo"]
    assert document["states"] == [["imported"], ["duplicate"], ["waiting"]]
    assert document["rebuilt"] == 3
