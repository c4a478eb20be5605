"""Zones on disk, as ``veen zone init`` makes them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from zone.directory import ZoneHome

MakeZone = Callable[..., "ZoneHome"]


def make_zone(root: Path, role: str = "online", **more: Any) -> ZoneHome:
    from zone.directory import ZoneHome
    from zone.init import ZoneRequest, init

    home, usual = ZoneHome(root), {"name": root.name, "storage": None, "trust": None}
    request = ZoneRequest(role=role, **(usual | more))
    init(home, request, now=int(time.time()), random=os.urandom)
    return home


@pytest.fixture(scope="session")
def a_zone() -> MakeZone:
    return make_zone


@pytest.fixture(scope="session")
def zone_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[ZoneHome, ZoneHome]:
    """Two zones of which the second trusts the first; they do not run, and nobody changes them."""
    folder = tmp_path_factory.mktemp("pair")
    online = make_zone(folder / "z1")
    return online, make_zone(folder / "z2", "offline", trust=online.handover)
