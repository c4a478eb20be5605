"""The metrics of a hub, with the names and units of OBS0.1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hub.disk import DiskSpace

MILLISECONDS: Final = (
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000,
)  # fmt: skip


ENTRIES: Final = (1, 16, 64, 256, 1_024, 4_096, 16_384, 65_536)


@dataclass(frozen=True, slots=True)
class HttpMetrics:
    """What an HTTP worker counts and measures."""

    submit_ok: Counter
    submit_err: Counter
    rate_limited: Counter
    verify_latency: Histogram
    commit_latency: Histogram
    end_to_end_latency: Histogram
    proof_latency: Histogram
    queue_depth: Gauge


def http_metrics(registry: CollectorRegistry) -> HttpMetrics:
    return HttpMetrics(
        submit_ok=counter(registry, "veen_submit_ok", "Messages committed"),
        submit_err=counter(registry, "veen_submit_err", "Messages refused, by code", "code"),
        rate_limited=counter(registry, "veen_rate_limited", "Messages above a capability's rate"),
        verify_latency=latency(registry, "veen_verify_latency_ms", "Checks before the sequencer"),
        commit_latency=latency(registry, "veen_commit_latency_ms", "Waiting for the sequencer"),
        end_to_end_latency=latency(registry, "veen_end_to_end_latency_ms", "A whole submit"),
        proof_latency=latency(registry, "veen_proof_latency_ms", "Building a proof"),
        queue_depth=Gauge(
            "veen_queue_depth",
            "Messages waiting for the sequencer",
            registry=registry,
            multiprocess_mode="livesum",
        ),
    )


@dataclass(frozen=True, slots=True)
class SequencerMetrics:
    """What the sequencer measures."""

    fsync_latency: Histogram
    checkpoint_interval: Histogram
    time_ahead: Gauge
    clock_step: Gauge

    def clock_read(self, hub_time_ahead_sec: int, clock_step_ahead_sec: int) -> None:
        self.time_ahead.set(hub_time_ahead_sec)
        self.clock_step.set(clock_step_ahead_sec)

    def appended(self, seconds: float) -> None:
        self.fsync_latency.observe(1000 * seconds)

    def checkpointed(self, entries: int) -> None:
        self.checkpoint_interval.observe(entries)


def sequencer_metrics(registry: CollectorRegistry) -> SequencerMetrics:
    return SequencerMetrics(
        fsync_latency=latency(registry, "veen_fsync_latency_ms", "Writing and syncing a group"),
        checkpoint_interval=Histogram(
            "veen_checkpoint_interval",
            "Entries from one checkpoint of a label to the next",
            registry=registry,
            buckets=ENTRIES,
        ),
        time_ahead=Gauge(
            "veen_hub_time_ahead_seconds",
            "Hub time minus the clock; above 0 hub time is held",
            registry=registry,
            multiprocess_mode="mostrecent",
        ),
        clock_step=Gauge(
            "veen_clock_step_ahead_seconds",
            "By how much the clock stepped ahead; above 0 messages are refused",
            registry=registry,
            multiprocess_mode="mostrecent",
        ),
    )


class DiskMetrics(Collector):
    """Disk space, measured when the metrics are collected."""

    def __init__(self, disk_space: Callable[[], DiskSpace]) -> None:
        self._disk_space = disk_space

    def collect(self) -> Iterator[Metric]:
        disk = self._disk_space()
        yield GaugeMetricFamily(
            "veen_disk_free_bytes",
            "Free on the disk of the data directory",
            value=disk.free_bytes,
        )
        if disk.days_left is not None:
            yield GaugeMetricFamily(
                "veen_disk_days_left",
                "Days until it is full, at the rate of the last day",
                value=disk.days_left,
            )


def counter(registry: CollectorRegistry, name: str, help_: str, *labels: str) -> Counter:
    """A counter; the exposition puts _total after its name."""
    return Counter(name, help_, labels, registry=registry)


def latency(registry: CollectorRegistry, name: str, help_: str) -> Histogram:
    """A histogram of milliseconds."""
    return Histogram(name, help_, registry=registry, buckets=MILLISECONDS)
