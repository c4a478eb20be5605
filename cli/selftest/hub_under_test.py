"""The hub that a self-test starts for itself: a process of its own on a free port (OS13.1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cli.selftest.process_under_test import ProcessUnderTest
from hub.process import Launch
from hub.settings import Settings, load
from hub.storage.datadir import DataDir


class HubUnderTest(ProcessUnderTest):
    """One data directory with its settings; a hub runs on it from ``start`` to ``stop``."""

    def __init__(self, root: Path, settings: str, environment: Mapping[str, str]) -> None:
        super().__init__("hub", root / "hub.log", environment, "/readyz")
        self.datadir = DataDir(root / "hub")
        self._config = root / "hub.toml"
        self._config.write_text(settings)

    @property
    def settings(self) -> Settings:
        return load(self._config)

    def start(self) -> None:
        """Start it; on return it takes messages."""
        options = {"listen": f"127.0.0.1:{self.port}"}
        self.launch(Launch(self.datadir, self._config, options).command("hub"))
