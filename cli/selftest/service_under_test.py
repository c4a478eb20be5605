"""The query service that a self-test starts for itself, as ``veen recorder serve`` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cli.selftest.process_under_test import ProcessUnderTest
from recorder.service.process import Launch


class ServiceUnderTest(ProcessUnderTest):
    """Its settings are written before it starts, and name the port that it has here."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__("query service", folder / "service.log", environment, "/healthz")

    def start(self, config: Path, *caps: Path) -> None:
        self.launch(Launch(config, caps=caps).command("recorder.service.supervisor"))
