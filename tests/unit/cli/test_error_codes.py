"""The codes of errors in JSON documents: DAGs and programs match them, so they never change."""

from __future__ import annotations

import pytest

from bridge.exporter.state import ExporterBusy
from bridge.importer.directory import ImporterBusy
from bridge.importer.staging import InsufficientSpace
from cli.errors import _code
from hub.settings import BadHubSettings
from hub.storage.datadir import DataDirLocked
from recorder.archive.source import DirectoryChanged
from recorder.index.engine import QueryTooLarge
from veen.errors import Refused, VeenError
from veen.keystore.directory import Locked
from veen.system.config import BadSettings


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ExporterBusy("x"), "BUSY"),
        (ImporterBusy("x"), "BUSY"),
        (Locked("x"), "LOCKED"),
        (DataDirLocked("x"), "LOCKED"),
        (BadSettings("x"), "BAD_SETTINGS"),
        (BadHubSettings("x"), "BAD_SETTINGS"),
        (InsufficientSpace("x"), "NO_ROOM"),
        (DirectoryChanged("x"), "MOVED"),
        (QueryTooLarge("x"), "TOO_LARGE"),
        (Refused("x"), "REFUSED"),
    ],
)
def test_an_error_has_its_code(error: VeenError, code: str) -> None:
    assert _code(error) == code


def test_a_task_waits_for_whoever_holds_what_it_needs() -> None:
    """Airflow's tasks retry at these codes; a renamed class must not end the waiting."""
    from veen_airflow.commands import _HELD  # noqa: PLC0415 - only this test needs the DAGs

    assert {_code(ExporterBusy("x")), _code(ImporterBusy("x")), _code(Locked("x"))} == set(_HELD)
