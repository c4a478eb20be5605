"""Zones to show."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def make_page_zone_in() -> Callable[..., Any]:
    """A zone's folder with its file and nothing more: no process runs."""
    from support.plugins import page_zone

    def make(root: Path, role: str = "online") -> Any:
        trust = None
        if role == "offline":
            _init(root / "other", "online", None)
            trust = root / "other" / "handover"
        _init(root / "zone", role, trust)
        return page_zone.PageZone(root / "zone")

    return make


@pytest.fixture
def make_page_zone(make_page_zone_in: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    return lambda role="online": make_page_zone_in(tmp_path, role)


def _init(folder: Path, role: str, trust: Path | None) -> None:
    from zone.directory import ZoneHome
    from zone.init import ZoneRequest, init

    request = ZoneRequest(name=folder.name, role=role, storage=None, trust=trust, medium=None)
    init(ZoneHome(folder), request, now=1_794_000_000, random=os.urandom)
