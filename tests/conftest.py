"""The shared fixtures, the marks of the second tier, long files first, and examples of properties.

A long file that starts last would keep one worker busy after the others are done.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")

from support.long_form import LONG  # noqa: E402 (rewritten first)

# Loaded in every run, of whatever folder: they import what they start only when it is asked for.
pytest_plugins = [
    "support.bridge.fixtures",
    "support.cli.fixtures",
    "support.client.fixtures",
    "support.dags.fixtures",
    "support.hub.server_fixtures",
    "support.hub.storage_fixtures",
    "support.keystore.fixtures",
    "support.objects.fixtures",
    "support.plugins.fixtures",
    "support.recorder.api_fixtures",
    "support.recorder.archive_fixtures",
    "support.recorder.emit_fixtures",
    "support.recorder.index_fixtures",
    "support.recorder.query_fixtures",
    "support.spark.fixtures",
    "support.veen.fixtures",
    "support.zone.fixtures",
]

settings.register_profile(
    "veen",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60 * (25 if LONG else 1),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("veen")

TESTS = Path(__file__).parent

LONG_FILES = (
    "e2e/zone/test_demo.py",
    "e2e/cli/",
    "faults/hub/test_faults.py",
    "faults/zone/",
    "e2e/zone/",
    "faults/hub/server/",
    "e2e/plugins/",
    "e2e/dags/",
    "faults/dags/",
    "faults/selftest/",
    "e2e/selftest/",
    "integration/spark/",
    "integration/recorder/folds/",
    "faults/bridge/exporter/",
    "faults/bridge/importer/",
    "integration/bridge/importer/",
    "integration/recorder/",
)


@pytest.fixture(scope="session")
def long_factor() -> int:
    """How many times as much a property does in the long form."""
    return 20 if LONG else 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(TESTS / "e2e"):
            item.add_marker(pytest.mark.e2e)
    items.sort(key=_order)


def pytest_runtest_teardown() -> None:
    """Reset the global options: a command that ran in this process may have left --json."""
    if (console := sys.modules.get("cli.console")) is not None:
        console._global_options.set(console.GlobalOptions())


def _order(item: pytest.Item) -> int:
    path = item.path.relative_to(TESTS).as_posix()
    return next(
        (order for order, name in enumerate(LONG_FILES) if path.startswith(name)), len(LONG_FILES)
    )
