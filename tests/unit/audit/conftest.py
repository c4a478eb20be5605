"""Logs made from the protocol alone, as a dictionary of files; the same history in any chunks."""

from __future__ import annotations

import random

import pytest

from support.audit.audit_files import Files, laid_out
from support.audit.audit_history import a_history


@pytest.fixture(scope="session")
def golden_files() -> Files:
    """A log with several chunks in each label; tests take copies of it."""
    return laid_out(a_history(random.Random(7), 90), lambda: 8)


@pytest.fixture
def files(golden_files: Files) -> Files:
    return dict(golden_files)
