"""Health, readiness and metrics of the query service."""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Iterator
from typing import Final

from flask import Blueprint, Response, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from recorder.api.answer import answer
from recorder.api.edge import Edge, edge
from recorder.index.home import NoIndex
from recorder.index.status import IndexStatus, status
from recorder.service import follower_report
from recorder.service.refusal import ErrorCode, Refusal, unavailable
from recorder.service.standing import accepts_overwriting, anchoring, warnings
from recorder.settings_query import AUDITOR
from veen.zone_metrics import ZoneParts

bp = Blueprint("health", __name__)
ASKED_SEC: Final = 300
"""One round of the follower may read much of every stream; the next one asks again."""


@bp.get("/healthz")
def healthz() -> Response:
    """That this worker reads the service's own file."""
    at = edge()
    found = {"ok": True, "queries": dict(at.results.counts()), "warnings": warnings(at.settings)}
    return answer(found)


@bp.get("/readyz")
def readyz() -> Response:
    """That there is an index, that it is followed, and a checkpoint up to which a query speaks."""
    stopped = follower_report.problem(edge().follower)
    if stopped is not None:
        raise unavailable(stopped)
    found = _index(edge())
    if found is None:
        raise unavailable("there is no index yet")
    if found.checkpoint is None:
        raise unavailable("the index has not reached a recorder checkpoint yet")
    if found.alarms:
        raise unavailable(f"the index disagrees with the hub: {found.alarms[0]}")
    if found.trouble:
        raise unavailable(f"the index does not follow: {found.trouble}")
    if found.asked_sec is None or found.asked_sec > ASKED_SEC:
        raise unavailable(_not_asked(found))
    return answer(
        {
            "ok": True,
            "checkpoint_id": found.checkpoint.hex(),
            "lag": found.entries,
            "asked_seconds_ago": found.asked_sec,
        }
    )


def _not_asked(found: IndexStatus) -> str:
    if found.asked_sec is None:
        return "the index has not asked the hub yet"
    return f"the index last asked the hub {found.asked_sec} s ago, expected at most {ASKED_SEC} s"


@bp.get("/metrics")
def metrics() -> Response:
    if not _is_local() and AUDITOR not in edge().credentials.principal().roles:
        raise Refusal(ErrorCode.UNAUTHORIZED, "metrics are for auditors, or from this host")
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        text = generate_latest(registry)
    else:
        text = generate_latest(edge().registry)
    standing = CollectorRegistry()
    standing.register(_Standing(edge()))
    standing.register(ZoneParts(os.environ))
    return Response(text + generate_latest(standing), content_type=CONTENT_TYPE_LATEST)


class _Standing(Collector):
    """How things stand now, asked when the metrics are."""

    def __init__(self, at: Edge) -> None:
        self._at = at

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("veen_query_queries", "Queries, by state", labels=["state"])
        for state, count in self._at.results.counts().items():
            states.add_metric([state], count)
        yield states
        yield _gauge(
            "veen_query_audits_waiting", "Audit entries not yet recorded", self._at.audits.count()
        )
        yield from self._index()
        yield from self._anchors()
        yield _gauge(
            "veen_objects_accepts_overwriting",
            "Whether a store that can overwrite is accepted",
            accepts_overwriting(self._at.settings),
        )

    def _index(self) -> Iterator[Metric]:
        found = _index(self._at)
        if found is not None:
            yield _gauge("veen_index_lag_entries", "Entries not yet indexed", found.entries)
            yield _gauge("veen_index_lag_seconds", "How far the index is behind", found.seconds)
            if found.asked_sec is not None:
                yield _gauge(
                    "veen_index_asked_seconds", "Since the hub was last asked", found.asked_sec
                )
        yield from self._follower()

    def _follower(self) -> Iterator[Metric]:
        stopped = follower_report.problem(self._at.follower)
        yield _gauge("veen_index_follower_up", "Whether the index is followed", stopped is None)
        report = follower_report.read(self._at.follower)
        yield CounterMetricFamily(
            "veen_index_follower_restarts",
            "Failures after which the index follower was started again",
            value=report.restarts if report else 0,
        )

    def _anchors(self) -> Iterator[Metric]:
        found = anchoring(self._at.settings, int(time.time()))
        if found is None:
            return
        yield CounterMetricFamily(
            "veen_anchor_failures", "Anchors that could not be made", value=found.failures
        )
        yield _gauge(
            "veen_anchor_waiting_checkpoints", "Checkpoints that no anchor covers", found.waiting
        )
        late = found.lateness
        yield _gauge(
            "veen_anchor_late_checkpoints", "Those beyond what is allowed", late.checkpoints
        )
        yield _gauge("veen_anchor_late_seconds", "Time beyond what is allowed", late.seconds)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _index(at: Edge) -> IndexStatus | None:
    try:
        return status(at.index, int(time.time()))
    except NoIndex:
        return None


def _is_local() -> bool:
    """A peer on this host. What a proxy here passes on comes from elsewhere."""
    if "X-Forwarded-For" in request.headers or "Forwarded" in request.headers:
        return False
    try:
        return ipaddress.ip_address(request.remote_addr or "").is_loopback
    except ValueError:
        return False
