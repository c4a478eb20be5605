"""Which tests are of the second tier, and long files first.

A long file that starts last would keep one worker busy after the others are done.
"""

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

END_TO_END = (
    "cli/test_golden.py",
    "dags/test_dag_cluster.py",
    "dags/test_dag_faults.py",
    "dags/test_dag_offline.py",
    "dags/test_dag_online.py",
    "dags/test_dag_polls.py",
    "dags/test_dag_query.py",
    "dags/test_dag_rest.py",
    "dags/test_dag_retention.py",
    "docs/test_blocks.py",
    "hub/faults/",
    "hub/server/test_kill.py",
    "hub/server/test_power_cut.py",
    "plugins/test_access.py",
    "plugins/test_browser.py",
    "release/",
    "selftest/test_mutants.py",
    "selftest/test_whole.py",
    "spark/test_cluster.py",
    "spark/test_h30_authenticated.py",
    "spark/test_query_service.py",
    "spark/test_submitted.py",
    "zone/test_demo.py",
    "zone/test_zone_crash.py",
    "zone/test_zone_up.py",
    "zone_services/",
)
"""Whole zones, Airflow, browsers, clusters and disks that fail: run by make test-e2e."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(f"/tests/{name}" in item.path.as_posix() for name in END_TO_END):
            item.add_marker(pytest.mark.e2e)
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    path = item.path.as_posix()
    return next(
        (turn for turn, name in enumerate(LONG_FILES) if f"/tests/{name}" in path), len(LONG_FILES)
    )
