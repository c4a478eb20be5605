"""What a carrier claims to carry, before it is known whether that holds (D67)."""

from __future__ import annotations

from typing import NamedTuple

from bridge.carrier.check import Report


class Claim(NamedTuple):
    """The bundle that the ledger of a carrier names."""

    bundle_id: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int

    def position(self, seq: int) -> int | None:
        """Where an event of the source stands in the bundle, from 0; None for none of it."""
        return seq - self.from_seq if self.from_seq <= seq <= self.to_seq else None


def claim_of(report: Report) -> Claim | None:
    """None where no trusted exporter has signed it, it is not readable, or it is a heartbeat."""
    if report.signer is None or report.ledger is None:
        return None
    entry = report.ledger.tail[-1]
    if entry.bundle_id is None:
        return None
    return Claim(entry.bundle_id, entry.hub_id, entry.stream, entry.from_seq, entry.to_seq)
