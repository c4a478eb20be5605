"""The parts of a zone as its supervisor last wrote them down, for metrics and the page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from veen.errors import Malformed

FILE: Final = "run/state.json"
"""Where the supervisor writes it, below the folder of the zone."""

_UP: Final = "up"


@dataclass(frozen=True, slots=True)
class ZonePart:
    """``trouble`` is what its last process said at its end, while that still matters."""

    name: str
    is_ready: bool
    restarts: int
    is_failing: bool
    trouble: str


def decode(raw: bytes) -> tuple[ZonePart, ...]:
    """The parts of a zone that is up; of any other there is nothing to say."""
    try:
        found: dict[str, Any] = json.loads(raw)
        if found["stage"] != _UP:
            return ()
        waiting = [{"name": name} for name in found.get("waiting", ())]
        unstarted = found.get("unstarted", ())
        return tuple(_part(one) for one in (*found["running"], *unstarted, *waiting))
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"{FILE}: expected the state of a supervisor, got {error!r}") from error


def _part(found: dict[str, Any]) -> ZonePart:
    return ZonePart(
        name=str(found["name"]),
        is_ready=bool(found.get("is_ready", False)),
        restarts=int(found.get("restarts", 0)),
        is_failing=bool(found.get("is_failing", False)),
        trouble=str(found.get("trouble", "")),
    )
