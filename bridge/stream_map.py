"""The stream map: which stream of the source hub is imported to which stream here (AGB0 4.2)."""

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
"""The stream where an offline zone records each import, by an identity that writes nothing else."""
COMPLETED: Final = "import.completed"
"""The type of the event, of which each imported bundle has one."""
_SOURCE: Final = re.compile(r"(export|record)(/[A-Za-z0-9._-]+)+")
_TARGET: Final = re.compile(r"import(/[A-Za-z0-9._-]+)+")


class UnmappedStream(VeenError):
    """A stream that the settings have no route for."""


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """A route from a stream of the source hub to a stream of the hub in the other zone."""

    hub_id: bytes
    source: str
    target: str


class BridgeStreamMap:
    """All routes. Each source has one target, and no two sources share a target: an import stream
    is the history of exactly one source stream.

    The audit log of each exporting hub has an implied route.
    """

    def __init__(self, routes: Iterable[StreamRoute]) -> None:
        listed = tuple(routes)
        for route in listed:
            _verify_names(route)
        known = {(route.hub_id, route.source) for route in listed}
        hubs = sorted({route.hub_id for route in listed})
        implied = [
            StreamRoute(hub_id, ONLINE_LOG, default_target(ONLINE_LOG))
            for hub_id in hubs
            if (hub_id, ONLINE_LOG) not in known
        ]
        self.routes = (*listed, *implied)
        _verify_collisions(self.routes)
        self._by_source = {(route.hub_id, route.source): route for route in self.routes}

    def route(self, hub_id: bytes, source: str) -> StreamRoute:
        route = self._by_source.get((hub_id, source))
        if route is None:
            raise UnmappedStream(
                f"{source} of hub {hub_id.hex()} is in no [[streams]] of the settings; "
                "add it there if it should cross"
            )
        return route

    def sources(self, hub_id: bytes) -> tuple[str, ...]:
        """The exported streams of a hub, its audit log last, since it is about the others."""
        names = [route.source for route in self.routes if route.hub_id == hub_id]
        return tuple(sorted(names, key=lambda name: (name == ONLINE_LOG, name)))


def default_target(source: str) -> str:
    """``export/zone/a`` becomes ``import/zone/a``; any other name is prefixed with ``import/``."""
    return IMPORTED + source.removeprefix("export/")


def _verify_names(route: StreamRoute) -> None:
    if route.source != ONLINE_LOG and not _SOURCE.fullmatch(route.source):
        raise BadSettings(
            f"stream {route.source!r} cannot be exported: expected {ONLINE_LOG}, or export/ or "
            "record/ followed by A-Z, a-z, 0-9, '.', '_', '-' between slashes"
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
