"""What lies in quarantine, and why: read back from the reasons beside the carriers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Any, Final

REASON: Final = "reason.json"
KEPT: Final = "kept"
HASHES: Final = "hashes"
"""``kept`` in a reason: nothing of the carrier lies here but the list of its hashes."""
FORK: Final = "E.SEQ/FORK"
"""The code of what is evidence that a hub signed two histories."""
_MOST_BYTES: Final = 8 << 20
"""Two checkpoints are evidence, and are written in hex."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One carrier that is kept apart; ``path`` is where."""

    path: Path
    code: str
    told: str


def quarantined(folder: Path, most: int) -> tuple[list[Quarantined], int]:
    """The newest, so many of them, and how many there are."""
    if not folder.is_dir():
        return [], 0
    with os.scandir(folder) as entries:
        found = [(one.stat(follow_symlinks=False).st_mtime_ns, one.name) for one in entries]
    return [_one(folder / name) for _, name in nlargest(most, found)], len(found)


def code_of(folder: Path) -> str | None:
    """Why what lies in a folder does; None where nothing but the reason is left, or not even it.

    Where nothing but hashes was ever kept, the reason is enough.
    """
    reason = _read(folder)
    is_kept = reason.get(KEPT) == HASHES or (
        folder.is_dir() and any(one.name != REASON for one in folder.iterdir())
    )
    return str(reason["code"]) if is_kept and "code" in reason else None


def _one(path: Path) -> Quarantined:
    reason = _read(path)
    code = str(reason.get("code", "unknown"))
    return Quarantined(path, code, str(reason.get("told", f"its {REASON} cannot be read")))


def _read(folder: Path) -> dict[str, Any]:
    try:
        with (folder / REASON).open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
