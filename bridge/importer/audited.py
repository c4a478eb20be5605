"""What the audit log of the importing zone tells of bundles, for a ledger that is made again."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.audit import read_log
from bridge.audit_events import (
    REJECTED,
    AuditEvent,
    BundleReleased,
    Equivocation,
    ImportBegin,
    ImportBlocked,
    ImportCheckpoint,
    ImportSuccess,
    StreamThawed,
    TrustChanged,
)
from bridge.stream_map import OFFLINE_LOG
from veen.client.client import Client


@dataclass(slots=True)
class Audited:
    """``rejected`` are the bundles that people decided against and that did not go in since;
    ``covered`` those that were imported before a checkpoint was made over all that was.
    """

    begun: dict[bytes, ImportBegin] = field(default_factory=dict)
    succeeded: dict[bytes, ImportSuccess] = field(default_factory=dict)
    rejected: dict[bytes, ImportBlocked] = field(default_factory=dict)
    forks: list[Equivocation] = field(default_factory=list)
    covered: set[bytes] = field(default_factory=set)
    trust: list[TrustChanged] = field(default_factory=list)

    def add(self, event: AuditEvent) -> None:
        """One entry more, in the order of the log."""
        match event:
            case ImportBegin():
                self.begun[event.bundle_id] = event
                self.rejected.pop(event.bundle_id, None)
            case ImportSuccess():
                self.succeeded[event.bundle_id] = event
            case ImportCheckpoint():
                self.covered.update(self.succeeded)
            case ImportBlocked(decision=decision) if decision == REJECTED:
                self.rejected[event.bundle_id] = event
            case BundleReleased(bundle_id=bundle_id) if bundle_id is not None:
                self.rejected.pop(bundle_id, None)
            case Equivocation():
                self.forks.append(event)
            case TrustChanged():
                self.trust.append(event)
            case StreamThawed():
                thawed = (event.source_hub_id, event.stream)
                self.forks = [
                    one for one in self.forks if (one.source_hub_id, one.stream) != thawed
                ]


def read_audited(reader: Client, author: bytes | None = None) -> Audited:
    found = Audited()
    for recorded in read_log(reader, OFFLINE_LOG, author=author):
        found.add(recorded.event)
    return found
