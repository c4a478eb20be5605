"""A hub for all tests of a file, and zones that import into it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.bridge import import_yard
from support.hub.hub_process import hub_in
from support.paths import SUPPORT


@pytest.fixture(scope="module")
def z2_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with hub_in(tmp_path_factory.mktemp("z2") / "hub") as result:
        yield result


class Zygote:
    """Runs imports in processes that can be told to die."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SUPPORT / "bridge" / "import_process.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, zone: Any, *media: Path, **more: Any) -> int:
        detail = {
            "settings": str(zone.root / "bridge.toml"),
            "operator": zone.name,
            "media": [str(item) for item in media],
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(detail | more) + "\n")
        self._process.stdin.flush()
        return int(self._line()["child"])

    def wait(self) -> tuple[int, Any]:
        """How it ended, and what it told before."""
        detail: Any = None
        while "dead" not in (line := self._line()):
            detail = line
        return int(line["dead"]), detail

    def run(self, zone: Any, *media: Path, **more: Any) -> tuple[int, Any]:
        before = [import_yard.tree(item) for item in media]
        self.start(zone, *media, **more)
        result = self.wait()
        zone.presented.update(dict.fromkeys(media))
        # O9: whoever was killed has not written to a medium either.
        assert [import_yard.tree(item) for item in media] == before
        return result

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return json.loads(line)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    result = Zygote()
    yield result
    result.close()


@pytest.fixture
def zone(tmp_path: Path, z2_hub: Any, request: pytest.FixtureRequest) -> Any:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return import_yard.Zone(tmp_path / "zone", z2_hub, name)
