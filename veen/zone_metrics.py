"""The metrics of the parts of a zone, as their supervisor last wrote them down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from veen.errors import Malformed
from veen.zone_file import VARIABLE
from veen.zone_parts import FILE, ZonePart, decode


class ZoneParts(Collector):
    """Read whenever the metrics are asked for; a process outside of a zone has none of them."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._zone = variables.get(VARIABLE)

    def collect(self) -> Iterator[Metric]:
        parts = () if self._zone is None else _parts(Path(self._zone).parent / FILE)
        if not parts:
            return
        up = GaugeMetricFamily("veen_zone_part_up", "Parts of the zone that work", labels=["part"])
        failing = GaugeMetricFamily(
            "veen_zone_part_failing", "Parts that restarts did not help", labels=["part"]
        )
        restarts = CounterMetricFamily(
            "veen_zone_part_restarts", "How often parts were started again", labels=["part"]
        )
        for one in parts:
            up.add_metric([one.name], one.is_ready)
            failing.add_metric([one.name], one.is_failing)
            restarts.add_metric([one.name], one.restarts)
        yield from (up, failing, restarts)


def _parts(file: Path) -> tuple[ZonePart, ...]:
    try:
        return decode(file.read_bytes())
    except (OSError, Malformed):
        return ()
