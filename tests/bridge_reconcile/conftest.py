"""The modules of these tests by their bare names, and the counts that VEEN_TEST_LONG multiplies."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
OPEN = 'admission = "open"\nreads = "open"\n'
LONG = bool(os.environ.get("VEEN_TEST_LONG"))

for name in ("brute_force", "histories", "real_sides", "real_history"):
    known_as = f"reconcile_{name}"
    if known_as not in sys.modules:
        spec = importlib.util.spec_from_file_location(known_as, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[known_as] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known_as])


@pytest.fixture(scope="session")
def history_count() -> int:
    return 10_000 if LONG else 1_000


@pytest.fixture(scope="session")
def real_history_count() -> int:
    return 100 if LONG else 12


@pytest.fixture(scope="session")
def spark_history_count() -> int:
    return 60 if LONG else 2


def _load(folder: Path, name: str) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@dataclass(frozen=True)
class ZoneTools:
    """What the tests of the importer are made with."""

    yard: ModuleType
    process: ModuleType

    @contextmanager
    def hub_in(self, folder: Path, toml: str = OPEN) -> Iterator[Any]:
        """A running hub, until its block ends; it lets anybody in unless told otherwise."""
        found = self.process.HubProcess(folder)
        (folder / "hub.toml").write_text(toml)
        options = json.dumps({"listen": f"127.0.0.1:{found.port}"})
        where = ["--data-dir", str(found.data), "--config", str(folder / "hub.toml")]
        command = [sys.executable, "-m", "hub", *where, "--options", options]
        found.launch = lambda: found.run(command)
        try:
            yield found.start()
        finally:
            found.destroy()


@pytest.fixture(scope="session")
def zone_tools() -> ZoneTools:
    for name in ("spec_objects", "spec_client", "hub_process"):
        _load(HERE.parent / "hub" / "server", name)
    _load(HERE.parent / "bridge", "bridge_world")
    for name in ("import_oracles", "import_yard"):
        _load(HERE.parent / "bridge_import", name)
    return ZoneTools(sys.modules["import_yard"], sys.modules["hub_process"])


@pytest.fixture
def veen() -> Callable[..., Any]:
    """The command line in a process of its own."""

    def run(*words: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *words], capture_output=True, text=True, check=False
        )

    return run
