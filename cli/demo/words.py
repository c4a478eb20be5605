"""``veen`` commands as the demonstration runs them: the same words that anyone can type."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from cli.failure import Refused

_PATIENCE_SEC: Final = 300.0


class Answer(NamedTuple):
    code: int
    document: Mapping[str, Any]


class Words:
    """Each command is told before it runs; its answer is one JSON document."""

    def __init__(self, environment: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._environment = {**environment, "PYTHONSAFEPATH": "1"}
        self._tell = tell

    def veen(
        self,
        *words: str | Path,
        accept: tuple[int, ...] = (0,),
        patience_sec: float = _PATIENCE_SEC,
    ) -> Answer:
        given = [str(one) for one in words]
        self._tell(f"$ veen {shlex.join(given)}")
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [sys.executable, "-P", "-m", "cli.main", *given, "--json"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=patience_sec,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Refused(f"veen {given[0]} {given[1]} took too long: {error}") from error
        found = _document(done.stdout)
        if done.returncode not in accept:
            why = found.get("detail") or done.stderr.decode(errors="replace").strip()[-500:]
            raise Refused(f"veen {given[0]} {given[1]} ended with {done.returncode}: {why}")
        return Answer(done.returncode, found)


def _document(printed: bytes) -> dict[str, Any]:
    try:
        found = json.loads(printed)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
