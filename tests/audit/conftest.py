"""Logs made from the protocol alone, as a dictionary of files; the same history in any chunks."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import audit_crew
import audit_history
import pytest
from audit_files import Files, forged, laid_out
from audit_history import a_history


@pytest.fixture(scope="session")
def tools() -> Any:
    return SimpleNamespace(
        **vars(audit_history), audited=audit_crew.audited, forged=forged,
        in_any_order=audit_crew.in_any_order, laid_out=laid_out, replace=replace,
    )  # fmt: skip


@pytest.fixture(scope="session")
def golden() -> Files:
    """A log with several chunks in each label; tests take copies of it."""
    return laid_out(a_history(random.Random(7), 90), lambda: 8)


@pytest.fixture
def files(golden: Files) -> Files:
    return dict(golden)
