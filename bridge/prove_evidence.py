"""What J1, J2, K1 and K2 are judged by: every imported event verified again, and the audits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.audit import Recorded
from bridge.audit_events import (
    ExportHeartbeat,
    ExportSuccess,
    ImportBegin,
    ImportExcluded,
    ImportSuccess,
)
from bridge.prove_imports import NONE_READ, Completions
from bridge.reconcile.collect_imports import Placed
from bridge.reconcile.facts import Held, Stranger
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity


class OriginKey(NamedTuple):
    hub_id: bytes
    stream: str
    seq: int

    def __str__(self) -> str:
        return f"{self.stream} {self.seq} of hub {self.hub_id.hex()[:16]}"


class Known(NamedTuple):
    """An imported event that counts: where it stands, and what its origin signed of it."""

    key: OriginKey
    held: Held
    leaf: bytes
    root: bytes
    hub_ts: int
    bundle_id: bytes
    target: str
    target_seq: int


@dataclass(slots=True)
class Evidence:
    """``faults`` are messages in import streams that no origin stands behind; ``doubled`` are
    places of events that are there already. ``reached`` is the last entry of each exporter's ledger
    that its own log tells of; ``begun`` are the bundles of which an import was begun. ``completed``
    is what this zone's recorder says of each import.
    """

    hubs: Mapping[bytes, HubIdentity]
    events: dict[OriginKey, Known] = field(default_factory=dict)
    doubled: list[Known] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    exports: dict[bytes, list[tuple[int, ExportSuccess]]] = field(default_factory=dict)
    reached: dict[bytes, int] = field(default_factory=dict)
    begun: dict[bytes, ImportBegin] = field(default_factory=dict)
    imports: dict[bytes, tuple[int, ImportSuccess]] = field(default_factory=dict)
    exclusions: dict[tuple[bytes, int], int] = field(default_factory=dict)
    completed: Completions = NONE_READ

    def placed(self, one: Placed | Stranger) -> None:
        """Take in what stands in an import stream; all signatures are verified again."""
        if isinstance(one, Stranger):
            self.faults.append(f"{one.target} {one.seq} is no imported event")
        elif one.is_seen:
            self._add(one)

    def online(self, one: Recorded) -> None:
        event = one.event
        if isinstance(event, ExportSuccess):
            self.exports.setdefault(event.bundle_id, []).append((one.seq, event))
        if isinstance(event, ExportSuccess | ExportHeartbeat):
            self.reached[event.bridge_id] = max(event.n, self.reached.get(event.bridge_id, 0))

    def offline(self, one: Recorded) -> None:
        if isinstance(one.event, ImportSuccess):
            self.imports[one.event.bundle_id] = (one.seq, one.event)
        elif isinstance(one.event, ImportBegin):
            self.begun[one.event.bundle_id] = one.event
        elif isinstance(one.event, ImportExcluded):
            self.exclusions[one.event.bundle_id, one.event.seq] = one.seq

    def _add(self, one: Placed) -> None:
        event, receipt = one.event, one.receipt
        try:
            event.verify(self._hub(event.source_hub_id))
        except Untrusted as error:
            self.faults.append(f"{one.target} {one.seq}: {error}")
            return
        key = OriginKey(event.source_hub_id, event.origin_stream, receipt.stream_seq)
        known = Known(
            key,
            one.held,
            receipt.leaf_hash,
            receipt.mmr_root,
            receipt.hub_ts,
            event.bundle_id,
            one.target,
            one.seq,
        )
        if self.events.setdefault(key, known) is not known:
            self.doubled.append(known)

    def _hub(self, hub_id: bytes) -> HubIdentity:
        found = self.hubs.get(hub_id)
        if found is None:
            raise Untrusted(f"hub {hub_id.hex()} is not in the trust store")
        return found
