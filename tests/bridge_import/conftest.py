"""A hub for all tests of a file, and zones that import into it."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
OPEN = 'admission = "open"\nreads = "open"\n'


def _load(folder: Path, name: str) -> ModuleType:
    """A module beside the tests, under its own name."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


for _name in ("spec_objects", "spec_client", "hub_process"):
    _load(TESTS / "hub" / "server", _name)
_PROCESS = sys.modules["hub_process"]
_WORLD = _load(TESTS / "bridge", "bridge_world")
_load(HERE, "import_oracles")
_YARD = _load(HERE, "import_yard")


@pytest.fixture(scope="session")
def world() -> ModuleType:
    return _WORLD


@pytest.fixture(scope="session")
def import_yard() -> ModuleType:
    return _YARD


@contextmanager
def _hub(folder: Path, toml: str = OPEN) -> Iterator[Any]:
    found = _PROCESS.HubProcess(folder)
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
def hub_in() -> Callable[..., Any]:
    """A running hub in a folder, until its block ends."""
    return _hub


@pytest.fixture(scope="module")
def z2_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with _hub(tmp_path_factory.mktemp("z2") / "hub") as found:
        yield found


class Zygote:
    """Runs imports in processes that can be told to die."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "import_process.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, zone: Any, *media: Path, **more: Any) -> int:
        told = {
            "settings": str(zone.root / "bridge.toml"),
            "operator": zone.name,
            "media": [str(one) for one in media],
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told | more) + "\n")
        self._process.stdin.flush()
        return int(self._line()["child"])

    def wait(self) -> tuple[int, Any]:
        """How it ended, and what it told before."""
        told: Any = None
        while "dead" not in (line := self._line()):
            told = line
        return int(line["dead"]), told

    def run(self, zone: Any, *media: Path, **more: Any) -> tuple[int, Any]:
        before = [_YARD.tree(one) for one in media]
        self.start(zone, *media, **more)
        found = self.wait()
        zone.presented.update(dict.fromkeys(media))
        # O9: whoever was killed has not written to a medium either.
        assert [_YARD.tree(one) for one in media] == before
        return found

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return json.loads(line)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote()
    yield found
    found.close()


@pytest.fixture
def zone(tmp_path: Path, z2_hub: Any, request: pytest.FixtureRequest) -> Any:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return _YARD.Zone(tmp_path / "zone", z2_hub, name)
