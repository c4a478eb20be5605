"""``reason.json``, beside a carrier in quarantine: why it is there, for people and for a release.

A reason of version 1 has no version, ``told`` for ``detail`` and ``kept`` for ``stored``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Any, Final

REASON: Final = "reason.json"
FORK: Final = "E.SEQ/FORK"
"""The code of evidence that a hub signed two histories."""
_VERSION: Final = 2
_HASHES: Final = "hashes"
"""``stored`` if only the hashes of the carrier are."""
_EARLIER: Final = {"told": "detail", "kept": "stored"}
"""Keys of version 1."""
_MOST_BYTES: Final = 8 << 20
"""The size limit of a reason, which may contain two checkpoints in hex."""


@dataclass(frozen=True, slots=True)
class QuarantinedCarrier:
    """A carrier in quarantine, at ``path``; ``received`` is where it first came from."""

    path: Path
    code: str
    detail: str
    received: str = ""


def encode_reason(
    code: str,
    detail: str,
    received: Sequence[str],
    *,
    hashes: Sequence[str] | None = None,
    evidence: Mapping[str, object] | None = None,
) -> str:
    """The text of a reason; ``hashes`` if they are all that is stored of the carrier."""
    stored = {} if hashes is None else {"stored": _HASHES, _HASHES: list(hashes)}
    document = {
        "version": _VERSION,
        "code": code,
        "detail": detail,
        "received": list(received),
        **(evidence or {}),
        **stored,
    }
    return json.dumps(document, sort_keys=True, indent=1) + "\n"


def quarantined(folder: Path, most: int) -> tuple[list[QuarantinedCarrier], int]:
    """The newest quarantined carriers, at most ``most``, and the total number."""
    if not folder.is_dir():
        return [], 0
    with os.scandir(folder) as entries:
        by_time = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.name) for entry in entries]
    return [read_carrier(folder / name) for _, name in nlargest(most, by_time)], len(by_time)


def code_of(folder: Path) -> str | None:
    """The code of a quarantined carrier; None if the carrier or the reason is gone.

    If only hashes were stored, the reason is enough.
    """
    reason = read_reason(folder)
    is_stored = reason.get("stored") == _HASHES or (
        folder.is_dir() and any(path.name != REASON for path in folder.iterdir())
    )
    return str(reason["code"]) if is_stored and "code" in reason else None


def read_reason(folder: Path) -> dict[str, Any]:
    """The reason as of this version; empty if it cannot be read or is of a later version."""
    try:
        with (folder / REASON).open("rb") as file:
            document = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict) or document.get("version", 1) not in (1, _VERSION):
        return {}
    return {_EARLIER.get(str(name), str(name)): value for name, value in document.items()}


def read_carrier(path: Path) -> QuarantinedCarrier:
    """A carrier in quarantine, with the code ``unknown`` if its reason cannot be read."""
    reason = read_reason(path)
    detail = reason.get(
        "detail",
        f"expected a {REASON} of version {_VERSION} or earlier, got none that can be read; "
        "bring the medium again",
    )
    received = reason.get("received")
    first = str(received[0]) if isinstance(received, list) and received else ""
    return QuarantinedCarrier(path, str(reason.get("code", "unknown")), str(detail), first)
