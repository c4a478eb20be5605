"""The shell blocks of the README and of the producer's walkthrough run in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT
from zone.services import free_port

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder,
        env=os.environ | {"PATH": path, "HOME": str(folder), "NO_PROXY": "*"},
        capture_output=True, text=True, check=False, timeout=200, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    run("veen hub stop --data-dir hub", tmp_path)


@pytest.mark.parametrize("name", ["README.md", "docs/record-my-service.md"])
def test_the_blocks_of_a_page_run_in_order(name: str, home: Path) -> None:
    blocks = _BLOCK.findall((ROOT / name).read_text())
    assert len(blocks) >= 3
    port = free_port()
    for number, block in enumerate(blocks, start=1):
        done = run(block.replace("127.0.0.1:8080", f"127.0.0.1:{port}"), home)
        assert done.returncode == 0, f"block {number}:\n{block}\n{done.stdout}\n{done.stderr}"
