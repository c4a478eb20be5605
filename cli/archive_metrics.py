"""The state of a store and of the hubs in it, as metrics for the textfile collector of a node."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from cli.failure import Refused
from recorder.archive.status import HubStatus
from veen.objects.opened import StoreStatus


def write_metrics(path: Path, store: StoreStatus, hubs: Iterable[HubStatus], now: int) -> None:
    """Put the metrics at ``path``, whole or not at all."""
    registry = CollectorRegistry()
    _tell_of_store(registry, store, now)
    _tell_of_hubs(registry, store, list(hubs))
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise Refused(
            f"{path}: {error.strerror}: give --metrics a file that can be made"
        ) from error


def _tell_of_store(registry: CollectorRegistry, store: StoreStatus, now: int) -> None:
    looked_at = Gauge(
        "veen_archive_looked_at_seconds", "When this was found out", ["store"], registry=registry
    )
    looked_at.labels(store.url).set(now)
    keeps = Gauge(
        "veen_archive_keeps_condition",
        "Whether the store keeps a condition of writes; none of one that was not asked",
        ["store", "condition"],
        registry=registry,
    )
    found = {"if_none_match": store.keeps_if_none_match, "if_match": store.keeps_if_match}
    for condition, is_kept in found.items():
        if is_kept is not None:
            keeps.labels(store.url, condition).set(is_kept)


def _tell_of_hubs(registry: CollectorRegistry, store: StoreStatus, hubs: list[HubStatus]) -> None:
    def gauge(name: str, text: str, values: Iterable[float]) -> None:
        made = Gauge(f"veen_archive_{name}", text, ["store", "hub_id"], registry=registry)
        for one, value in zip(hubs, values, strict=True):
            made.labels(store.url, one.hub_id.hex()).set(value)

    gauge("entries", "Entries archived, of all labels", (one.entries for one in hubs))
    gauge("bytes", "Bytes that the latest state stands on", (one.stored_bytes for one in hubs))
    gauge("last_hub_ts_seconds", "hub_ts of the last archived entry", (x.last_ts for x in hubs))
    gauge(
        "escrow_has_current_key",
        "Whether the escrow holds the key with which the hub goes on",
        (bool(one.is_escrowed) for one in hubs),
    )
