"""A world in memory with carriers made of it, and zones that import into a hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.bridge.carrier_factory import CarrierFactory
    from support.bridge.import_runner import ImportRunner


@pytest.fixture(scope="session")
def grown_world() -> Any:
    """A stream of nine events, with metadata and disclosed bodies."""
    from support.bridge.bridge_world import World

    return World().grow(9)


@pytest.fixture
def carrier_factory(tmp_path: Path) -> CarrierFactory:
    from support.bridge.carrier_factory import CarrierFactory

    return CarrierFactory(tmp_path)


@pytest.fixture(scope="session")
def bundle_verdict() -> Callable[[bytes], str]:
    from support.bridge.carrier_factory import bundle_verdict

    return bundle_verdict


@pytest.fixture(scope="module")
def z2_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The hub of the importing zones of a file."""
    from support.hub.hub_process import hub_in

    with hub_in(tmp_path_factory.mktemp("z2") / "hub") as hub:
        yield hub


@pytest.fixture(scope="module")
def import_runner() -> Iterator[ImportRunner]:
    from support.bridge.import_runner import ImportRunner

    runner = ImportRunner()
    yield runner
    runner.close()


@pytest.fixture
def import_zone(tmp_path: Path, z2_hub: Any, request: pytest.FixtureRequest) -> Any:
    from support.bridge.importing_zone import Zone

    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return Zone(tmp_path / "zone", z2_hub, name)
