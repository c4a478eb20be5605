"""What the query service counts: requests at the edge, and queries in the runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)


@dataclass(frozen=True, slots=True)
class EdgeMetrics:
    requests: Counter
    audit_failures: Counter


@dataclass(frozen=True, slots=True)
class RunnerMetrics:
    ended: Counter
    duration: Histogram


def edge_metrics(registry: CollectorRegistry) -> EdgeMetrics:
    return EdgeMetrics(
        requests=Counter(
            "veen_query_requests", "Requests, by route and status", ("route", "status"),
            registry=registry,
        ),
        audit_failures=Counter(
            "veen_query_audit_failures", "Requests refused because no audit entry could be kept",
            registry=registry,
        ),
    )  # fmt: skip


def runner_metrics(registry: CollectorRegistry) -> RunnerMetrics:
    return RunnerMetrics(
        ended=Counter(
            "veen_query_ended", "Queries that ended, by engine and state", ("engine", "state"),
            registry=registry,
        ),
        duration=Histogram(
            "veen_query_duration_seconds", "From the start of a query to its recorded digest",
            ("engine",), registry=registry, buckets=SECONDS,
        ),
    )  # fmt: skip
