"""The plugin's modules under their bare names, as Airflow has them, and zones to show."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cli.zone_home import ZoneHome
from cli.zone_init import Wanted, init

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# At the end, as Airflow does it: an installed package is never hidden.
sys.path.append(str(ROOT / "plugins"))


def _load(folder: Path, name: str) -> ModuleType:
    """A module beside the tests, under its own name."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_load(HERE.parent / "recorder_anchor", "anchor_documents")
for _name in ("spec_objects", "spec_client", "hub_process"):
    _load(HERE.parent / "hub" / "server", _name)
_load(HERE.parent / "query_api", "query_world")
for _name in ("page_zone", "two_zones", "airflow_server", "airflow_person", "chromium"):
    _load(HERE, _name)


@pytest.fixture(scope="session")
def make_zone_in() -> Callable[..., Any]:
    """A zone's folder with its file and nothing more: no process runs."""

    def make(root: Path, role: str = "online") -> Any:
        trust = None
        if role == "offline":
            _init(root / "other", "online", None)
            trust = root / "other" / "handover"
        _init(root / "zone", role, trust)
        return sys.modules["page_zone"].PageZone(root / "zone")

    return make


@pytest.fixture
def make_zone(make_zone_in: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    return lambda role="online": make_zone_in(tmp_path, role)


def _init(folder: Path, role: str, trust: Path | None) -> None:
    wanted = Wanted(name=folder.name, role=role, storage=None, trust=trust, medium=None)
    init(ZoneHome(folder), wanted, now=1_794_000_000, random=os.urandom)
