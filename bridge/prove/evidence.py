"""Claims with their witnesses, and the evidence for J1, J2, K1 and K2 (AGB0 4.8, 5.2).

The evidence is every imported event, verified again, and the audit logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bridge.audit_log import (
    ExportHeartbeat,
    ExportSuccess,
    ImportBegin,
    ImportExcluded,
    ImportSuccess,
    RecordedEntry,
)
from bridge.prove.imports import NONE_READ, Completions
from bridge.reconcile.collect_logs import PlacedImport
from bridge.reconcile.facts import ForeignFact, ImportedFact
from bridge.reconcile.ranges import Ranges
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeClaim:
    """A claim and its ``witness``, what it was judged by. A claim that does not hold has a
    counterexample; a claim that could not be judged has ``not_covered``, the missing evidence.
    """

    name: str
    says: str
    witness: dict[str, Any]
    counterexample: str | None = None
    not_covered: str | None = None

    @property
    def holds(self) -> bool:
        return self.counterexample is None and self.not_covered is None

    def document(self) -> dict[str, Any]:
        return {
            "claim": self.name,
            "says": self.says,
            "verdict": self._verdict(),
            "counterexample": self.counterexample,
            "not_covered": self.not_covered,
            "witness": self.witness,
        }

    def _verdict(self) -> str:
        if self.counterexample is not None:
            return "failed"
        return "not covered" if self.not_covered is not None else "held"


def spans(seqs: Iterable[int]) -> list[list[int]]:
    """Sequence numbers as ranges, both ends included, for a witness."""
    return [list(span) for span in Ranges((n, n) for n in seqs)]


class OriginKey(NamedTuple):
    hub_id: bytes
    stream: str
    seq: int

    def __str__(self) -> str:
        return f"{self.stream} {self.seq} of hub {self.hub_id.hex()[:16]}"


class VerifiedImport(NamedTuple):
    """A verified imported event: its place, and what its origin signed of it."""

    key: OriginKey
    held: ImportedFact
    leaf: bytes
    root: bytes
    hub_ts: int
    bundle_id: bytes
    target: str
    target_seq: int


@dataclass(slots=True)
class ProofEvidence:
    """``faults`` are messages in import streams without a verified origin; ``doubled`` are further
    copies of imported events. ``reached`` is the last entry of each exporter's ledger in its own
    audit log; ``begun`` are the bundles whose import was begun. ``completed`` are this zone's own
    records of its imports.
    """

    hubs: Mapping[bytes, HubIdentity]
    events: dict[OriginKey, VerifiedImport] = field(default_factory=dict)
    doubled: list[VerifiedImport] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    exports: dict[bytes, list[tuple[int, ExportSuccess]]] = field(default_factory=dict)
    reached: dict[bytes, int] = field(default_factory=dict)
    begun: dict[bytes, ImportBegin] = field(default_factory=dict)
    imports: dict[bytes, tuple[int, ImportSuccess]] = field(default_factory=dict)
    exclusions: dict[tuple[bytes, int], int] = field(default_factory=dict)
    completed: Completions = NONE_READ

    def placed(self, import_: PlacedImport | ForeignFact) -> None:
        """Add a message of an import stream; all signatures are verified again."""
        if isinstance(import_, ForeignFact):
            self.faults.append(f"{import_.target} {import_.seq} is no imported event")
        elif import_.is_seen:
            self._add(import_)

    def online(self, entry: RecordedEntry) -> None:
        event = entry.event
        if isinstance(event, ExportSuccess):
            self.exports.setdefault(event.bundle_id, []).append((entry.seq, event))
        if isinstance(event, ExportSuccess | ExportHeartbeat):
            self.reached[event.bridge_id] = max(event.n, self.reached.get(event.bridge_id, 0))

    def offline(self, entry: RecordedEntry) -> None:
        if isinstance(entry.event, ImportSuccess):
            self.imports[entry.event.bundle_id] = (
                entry.seq,
                entry.event,
            )
        elif isinstance(entry.event, ImportBegin):
            self.begun[entry.event.bundle_id] = entry.event
        elif isinstance(entry.event, ImportExcluded):
            self.exclusions[entry.event.bundle_id, entry.event.seq] = entry.seq

    def _add(self, import_: PlacedImport) -> None:
        event, receipt = import_.event, import_.receipt
        try:
            event.verify(self._hub(event.source_hub_id))
        except Untrusted as error:
            self.faults.append(f"{import_.target} {import_.seq}: {error}")
            return
        key = OriginKey(event.source_hub_id, event.origin_stream, receipt.stream_seq)
        known = VerifiedImport(
            key,
            import_.held,
            receipt.leaf_hash,
            receipt.mmr_root,
            receipt.hub_ts,
            event.bundle_id,
            import_.target,
            import_.seq,
        )
        if self.events.setdefault(key, known) is not known:
            self.doubled.append(known)

    def _hub(self, hub_id: bytes) -> HubIdentity:
        hub = self.hubs.get(hub_id)
        if hub is None:
            raise Untrusted(f"hub {hub_id.hex()} is not in the trust store")
        return hub
