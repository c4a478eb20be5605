"""Health, readiness and metrics (OBS0.1, OBS0.3)."""

from __future__ import annotations

import os
import time
from typing import Final

from flask import Blueprint, Response, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from hub.api.admin import head_of
from hub.api.content import answer, no_body
from hub.api.context import HubContext, hub_context
from hub.disk import disk_space
from hub.metrics import DiskMetrics
from hub.sequencer.committer import Unavailable
from hub.sequencer.ipc import HubTimes
from veen.system.http_server import is_local_peer
from veen.system.zone_parts import ZoneParts
from veen.wire.api import HealthResponse, ReadyResponse

MAX_SKEW_SEC: Final = 60
bp = Blueprint("health", __name__)


@bp.get("/healthz")
def healthz() -> Response:
    """Show that this worker reads the log; the sequencer is not asked."""
    hub = hub_context()
    head = head_of(hub.reader)
    return answer(
        HealthResponse(
            ok=True,
            profile_id=hub.settings.profiles[0].profile_id(),
            peaks_count=head.peaks_count,
            last_stream_seq=head.last_stream_seq,
            last_mmr_root=head.root,
        )
    )


@bp.get("/readyz")
def readyz() -> Response:
    """Show that messages are accepted: the sequencer answers, its last write succeeded, the disk
    has the configured reserve, and the clock did not step ahead.

    ``ok`` is false while hub time is held; messages are accepted then.
    """
    hub, now = hub_context(), int(time.time())
    times = hub.sequencer.verify_ready()
    disk, rules = disk_space(hub.datadir, now), hub.settings.disk
    shortage, warning = disk.shortage(rules), disk.warning(rules)
    if shortage is not None:
        raise Unavailable(shortage)
    if not hub.reader.index.is_of(hub.identity.current().hub_id):
        raise Unavailable("the index is not readable")
    return answer(
        ReadyResponse(
            ok=times.ahead_of_clock_sec <= MAX_SKEW_SEC,
            hub_ts=times.hub_ts,
            hub_time_ahead_sec=times.ahead_of_clock_sec or None,
            disk_free_bytes=disk.free_bytes,
            disk_days_left=None if disk.days_left is None else int(disk.days_left),
            warnings=_warnings(times, warning),
        )
    )


def _warnings(times: HubTimes, disk: str | None) -> tuple[str, ...] | None:
    ahead, warnings = times.ahead_of_clock_sec, [] if disk is None else [disk]
    if ahead > MAX_SKEW_SEC:
        warnings.append(
            f"hub time is {ahead} s ahead of the hub's clock and is held until the clock has "
            'caught up; see "The clock is wrong" in docs/runbook.md'
        )
    return tuple(warnings) or None


@bp.get("/metrics")
def metrics() -> Response:
    hub = hub_context()
    if not is_local_peer(request.remote_addr, request.headers):
        hub.access.manager(no_body().raw)
    gauges = CollectorRegistry()
    gauges.register(DiskMetrics(lambda: disk_space(hub.datadir, int(time.time()))))
    gauges.register(ZoneParts(os.environ))
    text = generate_latest(_collected(hub)) + generate_latest(gauges)
    return Response(text, content_type=CONTENT_TYPE_LATEST)


def _collected(hub: HubContext) -> CollectorRegistry:
    """The sum over all processes of the hub, if they share a metrics directory."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return hub.registry
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry
