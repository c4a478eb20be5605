"""Health, readiness and metrics of the query service, of its anchors and of its object store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from flask import Blueprint, Response, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from recorder.anchor.anchors import Refs, anchor_failures
from recorder.api.context import QueryContext, answer, query_context
from recorder.checkpoints.store import AnchorCadence, CheckpointDirectory, CheckpointStore, Lateness
from recorder.index.reader import IndexStatus, status
from recorder.index.tables import NoIndex
from recorder.service import follower_report
from recorder.service.errors import ErrorCode, Refusal, unavailable
from recorder.settings import AUDITOR, RecorderSettings
from veen.objects.port import S3Settings
from veen.system.http_server import is_local_peer
from veen.system.zone_parts import ZoneParts

bp = Blueprint("health", __name__)

_OVERWRITING: Final = (
    "[objects] accept_overwriting_store is set: of two writers at once, one can overwrite a "
    "checkpoint, an anchor or an archived chunk; veen archive status shows what the store holds"
)
ASKED_SEC: Final = 300
"""Longer than a round of the follower, which may read much of every stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchoring:
    """``waiting`` counts the checkpoints that no anchor covers, ``failures`` all failures so
    far."""

    waiting: int
    failures: int
    lateness: Lateness


def anchoring(settings: RecorderSettings, now: int) -> Anchoring | None:
    """Read the state of anchoring from the checkpoint directory of this host.

    Returns None without anchoring.
    """
    home, anchor = CheckpointDirectory(settings.checkpoint.path), settings.anchor
    if anchor.kind == "none" or not home.checkpoints.is_dir():
        return None
    with closing(CheckpointStore(home, settings.hub.hub_id, None).newest_first()) as names:
        waiting = Refs(home, settings.hub.hub_id, None).waiting(names)
    cadence = AnchorCadence(
        every_checkpoints=anchor.every_checkpoints, every_minutes=anchor.every_minutes
    )
    return Anchoring(
        waiting=len(waiting),
        failures=anchor_failures(home).count,
        lateness=cadence.lateness(now, waiting),
    )


def accepts_overwriting(settings: RecorderSettings) -> bool:
    return isinstance(settings.objects, S3Settings) and settings.objects.accept_overwriting_store


def warnings(settings: RecorderSettings) -> list[str]:
    """Warnings about risks that the operator has accepted in the configuration."""
    return [_OVERWRITING] if accepts_overwriting(settings) else []


@bp.get("/healthz")
def healthz() -> Response:
    """Report that this worker can read the service's database."""
    context = query_context()
    counts = dict(context.results.counts())
    return answer({"ok": True, "queries": counts, "warnings": warnings(context.settings)})


@bp.get("/readyz")
def readyz() -> Response:
    """Report that the index exists, is followed, and has reached a recorder checkpoint."""
    stopped = follower_report.problem(query_context().follower)
    if stopped is not None:
        raise unavailable(stopped)
    index = _index(query_context())
    if index is None:
        raise unavailable("there is no index yet")
    if index.checkpoint is None:
        raise unavailable("the index has not reached a recorder checkpoint yet")
    if index.alarms:
        raise unavailable(f"the index disagrees with the hub: {index.alarms[0]}")
    if index.trouble:
        raise unavailable(f"the index does not follow: {index.trouble}")
    if index.asked_sec is None or index.asked_sec > ASKED_SEC:
        raise unavailable(_not_asked(index))
    return answer(
        {
            "ok": True,
            "checkpoint_id": index.checkpoint.hex(),
            "lag": index.entries,
            "asked_seconds_ago": index.asked_sec,
        }
    )


def _not_asked(status: IndexStatus) -> str:
    if status.asked_sec is None:
        return "the index has not asked the hub yet"
    return f"the index last asked the hub {status.asked_sec} s ago, expected at most {ASKED_SEC} s"


@bp.get("/metrics")
def metrics() -> Response:
    if (
        not is_local_peer(request.remote_addr, request.headers)
        and AUDITOR not in query_context().credentials.principal().roles
    ):
        raise Refusal(
            ErrorCode.UNAUTHORIZED, "metrics: expected an auditor or a request from this host"
        )
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        text = generate_latest(registry)
    else:
        text = generate_latest(query_context().registry)
    current = CollectorRegistry()
    current.register(_StatusCollector(query_context()))
    current.register(ZoneParts(os.environ))
    return Response(text + generate_latest(current), content_type=CONTENT_TYPE_LATEST)


class _StatusCollector(Collector):
    """Gauges that are computed when the metrics are requested."""

    def __init__(self, context: QueryContext) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("veen_query_queries", "Queries, by state", labels=["state"])
        for state, count in self._context.results.counts().items():
            states.add_metric([state], count)
        yield states
        yield _gauge(
            "veen_query_audits_waiting",
            "Audit entries not yet recorded",
            self._context.audits.count(),
        )
        yield from self._index()
        yield from self._anchors()
        yield _gauge(
            "veen_objects_accepts_overwriting",
            "Whether a store that can overwrite is accepted",
            accepts_overwriting(self._context.settings),
        )

    def _index(self) -> Iterator[Metric]:
        index = _index(self._context)
        if index is not None:
            yield _gauge("veen_index_lag_entries", "Entries not yet indexed", index.entries)
            yield _gauge("veen_index_lag_seconds", "How far the index is behind", index.seconds)
            if index.asked_sec is not None:
                yield _gauge(
                    "veen_index_asked_seconds", "Since the hub was last asked", index.asked_sec
                )
        yield from self._follower()

    def _follower(self) -> Iterator[Metric]:
        stopped = follower_report.problem(self._context.follower)
        yield _gauge("veen_index_follower_up", "Whether the index is followed", stopped is None)
        report = follower_report.read(self._context.follower)
        yield CounterMetricFamily(
            "veen_index_follower_restarts",
            "Failures after which the index follower was started again",
            value=report.restarts if report else 0,
        )

    def _anchors(self) -> Iterator[Metric]:
        anchors = anchoring(self._context.settings, int(time.time()))
        if anchors is None:
            return
        yield CounterMetricFamily(
            "veen_anchor_failures", "Anchors that could not be made", value=anchors.failures
        )
        yield _gauge(
            "veen_anchor_waiting_checkpoints", "Checkpoints that no anchor covers", anchors.waiting
        )
        late = anchors.lateness
        yield _gauge(
            "veen_anchor_late_checkpoints", "Those beyond what is allowed", late.checkpoints
        )
        yield _gauge("veen_anchor_late_seconds", "Time beyond what is allowed", late.seconds)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _index(context: QueryContext) -> IndexStatus | None:
    try:
        return status(context.index, int(time.time()))
    except NoIndex:
        return None
