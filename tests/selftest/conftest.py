"""Self-tests run by the real program, whole or broken on purpose."""

from __future__ import annotations

from types import ModuleType

import pytest
import selftest_run


@pytest.fixture(scope="session")
def selftest() -> ModuleType:
    """Runs the program and tells what came of it."""
    return selftest_run
