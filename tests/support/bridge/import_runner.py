"""Imports in processes of their own, which can be killed at a chosen operation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.bridge import importing_zone
from support.paths import SUPPORT


class ImportRunner:
    """Forks a process for each import."""

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
        """The exit status, and the last line before it."""
        detail: Any = None
        while "dead" not in (line := self._line()):
            detail = line
        return int(line["dead"]), detail

    def run(self, zone: Any, *media: Path, **more: Any) -> tuple[int, Any]:
        before = [importing_zone.tree(item) for item in media]
        self.start(zone, *media, **more)
        result = self.wait()
        zone.presented.update(dict.fromkeys(media))
        # O9: whoever was killed has not written to a medium either.
        assert [importing_zone.tree(item) for item in media] == before
        return result

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return json.loads(line)
