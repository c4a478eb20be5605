"""The command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def veen() -> Callable[..., Any]:
    """The command line in a process of its own."""

    def run(*words: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *words], capture_output=True, text=True, check=False
        )

    return run
