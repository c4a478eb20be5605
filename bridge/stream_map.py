"""Which stream of the other zone's hub becomes which stream here (AGB0 4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from veen.errors import VeenError
from veen.system.config import BadSettings

ONLINE_LOG: Final = "bridge/online/log"
OFFLINE_LOG: Final = "bridge/offline/log"
IMPORTED: Final = "import/"
IMPORTS: Final = "record/infrastructure/imports"
"""Where an offline zone records each import, by an identity that writes nothing else."""
COMPLETED: Final = "import.completed"
"""The type of the event that says so, one for each bundle."""
_SOURCE: Final = re.compile(r"(export|record)(/[A-Za-z0-9._-]+)+")
_TARGET: Final = re.compile(r"import(/[A-Za-z0-9._-]+)+")


class UnmappedStream(VeenError):
    """A stream that the settings do not let through."""


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """From a stream of one hub to a stream of the hub in the other zone."""

    hub_id: bytes
    source: str
    target: str


class BridgeStreamMap:
    """All routes. Each source has one target, and no two sources share one: what is imported
    into a stream is the history of exactly one other.

    The audit log of each exporting hub travels too, without being listed.
    """

    def __init__(self, routes: Iterable[StreamRoute]) -> None:
        listed = tuple(routes)
        for item in listed:
            _verify_names(item)
        known = {(item.hub_id, item.source) for item in listed}
        hubs = sorted({item.hub_id for item in listed})
        implied = [
            StreamRoute(hub_id, ONLINE_LOG, default_target(ONLINE_LOG))
            for hub_id in hubs
            if (hub_id, ONLINE_LOG) not in known
        ]
        self.routes = (*listed, *implied)
        _verify_collisions(self.routes)
        self._by_source = {(route.hub_id, route.source): route for route in self.routes}

    def route(self, hub_id: bytes, source: str) -> StreamRoute:
        value = self._by_source.get((hub_id, source))
        if value is None:
            raise UnmappedStream(
                f"{source} of hub {hub_id.hex()} is in no [[streams]] of the settings; "
                "add it there if it should cross"
            )
        return value

    def sources(self, hub_id: bytes) -> tuple[str, ...]:
        """What is exported of a hub, its audit log last: it tells of the others."""
        result = [route.source for route in self.routes if route.hub_id == hub_id]
        return tuple(sorted(result, key=lambda name: (name == ONLINE_LOG, name)))


def default_target(source: str) -> str:
    """``export/zone/a`` becomes ``import/zone/a``; anything else lies below import/ as it is."""
    return IMPORTED + source.removeprefix("export/")


def _verify_names(route: StreamRoute) -> None:
    if route.source != ONLINE_LOG and not _SOURCE.fullmatch(route.source):
        raise BadSettings(
            f"stream {route.source!r} cannot be exported: its name begins with export/ or record/ "
            f"and has A-Z, a-z, 0-9, '.', '_', '-' between its slashes, or it is {ONLINE_LOG}"
        )
    if not _TARGET.fullmatch(route.target):
        raise BadSettings(
            f"stream {route.source} cannot be imported into {route.target!r}: "
            f"that name must begin with {IMPORTED}"
        )


def _verify_collisions(routes: Iterable[StreamRoute]) -> None:
    sources: set[tuple[bytes, str]] = set()
    targets: dict[str, StreamRoute] = {}
    for route in routes:
        if (route.hub_id, route.source) in sources:
            raise BadSettings(f"stream {route.source} of hub {route.hub_id.hex()} is mapped twice")
        sources.add((route.hub_id, route.source))
        other = targets.setdefault(route.target, route)
        if other is not route:
            raise BadSettings(
                f"{other.source} of hub {other.hub_id.hex()} and {route.source} of hub "
                f"{route.hub_id.hex()} would both go into {route.target}; give one another target"
            )
