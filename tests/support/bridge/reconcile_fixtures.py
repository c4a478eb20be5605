"""The command line, and the counts that VEEN_TEST_LONG multiplies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

LONG = bool(os.environ.get("VEEN_TEST_LONG"))


@pytest.fixture(scope="session")
def history_count() -> int:
    return 10_000 if LONG else 1_000


@pytest.fixture(scope="session")
def real_history_count() -> int:
    return 100 if LONG else 12


@pytest.fixture(scope="session")
def spark_history_count() -> int:
    return 60 if LONG else 2


@pytest.fixture
def veen() -> Callable[..., Any]:
    """The command line in a process of its own."""

    def run(*words: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *words], capture_output=True, text=True, check=False
        )

    return run
