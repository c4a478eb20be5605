"""The changes of a trust directory, entered beside its files: what was changed, when and by whom.

The next import of the zone tells of them in bridge/offline/log.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from bridge.trust import read_file
from veen import durable

FILE: Final = "changes.txt"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_LINE: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z) (.+?): (.+)")


class Change(NamedTuple):
    """``who`` and ``what`` are printable, and on one line."""

    at: int
    who: str
    what: str


def enter(directory: Path, change: Change) -> None:
    path = directory / FILE
    before = path.read_bytes() if path.exists() else b""
    line = f"{datetime.fromtimestamp(change.at, UTC):{_TIME}} {change.who}: {change.what}\n"
    durable.write(path, before + line.encode())


def entered(directory: Path) -> list[Change]:
    """Every change in its order; a line that is none is nobody's word, and left out."""
    path = directory / FILE
    text = read_file(path).decode(errors="replace") if path.exists() else ""
    return [one for line in text.splitlines() if (one := _change(line)) is not None]


def _change(line: str) -> Change | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    try:
        at = datetime.strptime(found[1], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return Change(int(at.timestamp()), found[2], found[3])
