"""Long files first, so that no worker is left with one of them when the others are done."""

from __future__ import annotations

import pytest

LONG_FILES = (
    "zone/test_demo.py",
    "cli/test_golden.py",
    "hub/faults/test_faults.py",
    "zone/test_zone_crash.py",
    "zone/test_zone_up.py",
    "hub/server/test_kill.py",
    "plugins/",
    "dags/",
    "selftest/test_mutants.py",
    "selftest/test_whole.py",
    "hub/server/test_power_cut.py",
    "spark/",
    "folds/",
    "bridge_export/test_export_kill.py",
    "bridge_import/",
    "query_api/",
    "recorder/",
    "recorder_replay/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    path = item.path.as_posix()
    return next(
        (turn for turn, name in enumerate(LONG_FILES) if f"/tests/{name}" in path), len(LONG_FILES)
    )
