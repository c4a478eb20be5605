"""The state of the parts of a zone, as its supervisor wrote it, and their metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from veen.errors import Malformed
from veen.system.config import VARIABLE

FILE: Final = "run/state.json"
"""The state file of the supervisor, below the folder of the zone."""

_UP: Final = "up"


@dataclass(frozen=True, slots=True)
class ZonePart:
    """A part of a zone; ``trouble`` is the last output of a process that failed."""

    name: str
    is_ready: bool
    restarts: int
    is_failing: bool
    trouble: str


def decode(raw: bytes) -> tuple[ZonePart, ...]:
    """The parts of a zone that is up; empty for any other."""
    try:
        document: dict[str, Any] = json.loads(raw)
        if document["stage"] != _UP:
            return ()
        waiting = [{"name": name} for name in document.get("waiting", ())]
        unstarted = document.get("unstarted", ())
        return tuple(_part(part) for part in (*document["running"], *unstarted, *waiting))
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"{FILE}: expected the state of a supervisor, got {error!r}") from error


def _part(document: dict[str, Any]) -> ZonePart:
    return ZonePart(
        name=str(document["name"]),
        is_ready=bool(document.get("is_ready", False)),
        restarts=int(document.get("restarts", 0)),
        is_failing=bool(document.get("is_failing", False)),
        trouble=str(document.get("trouble", "")),
    )


class ZoneParts(Collector):
    """Collects the metrics of the parts; empty for a process outside a zone."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._zone = variables.get(VARIABLE)

    def collect(self) -> Iterator[Metric]:
        parts = () if self._zone is None else _parts(Path(self._zone).parent / FILE)
        if not parts:
            return
        up = GaugeMetricFamily(
            "veen_zone_part_up", "Parts of the zone that are healthy", labels=["part"]
        )
        failing = GaugeMetricFamily(
            "veen_zone_part_failing", "Parts that failed for good after restarts", labels=["part"]
        )
        restarts = CounterMetricFamily(
            "veen_zone_part_restarts", "Restarts of the parts", labels=["part"]
        )
        for part in parts:
            up.add_metric([part.name], part.is_ready)
            failing.add_metric([part.name], part.is_failing)
            restarts.add_metric([part.name], part.restarts)
        yield from (up, failing, restarts)


def _parts(file: Path) -> tuple[ZonePart, ...]:
    try:
        return decode(file.read_bytes())
    except (OSError, Malformed):
        return ()
