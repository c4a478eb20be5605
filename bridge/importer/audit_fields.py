"""What every audit entry about a bundle, and about a carrier that fails, tells of it (AGB0 4.6)."""

from __future__ import annotations

from typing import TypedDict

from bridge.importer.claim import Claim
from bridge.importer.ledger_tables import BundleRow
from bridge.refusal import Refused


class BundleFields(TypedDict):
    operator: str
    bundle_id: bytes
    sha256: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int
    count: int


class FailedFields(TypedDict):
    operator: str
    bundle_id: bytes | None
    sha256: bytes
    source_hub_id: bytes | None
    stream: str | None
    from_seq: int | None
    to_seq: int | None
    position: int | None
    offset: int | None
    is_claimed: bool


def bundle_fields(row: BundleRow, operator: str) -> BundleFields:
    return {
        "operator": operator,
        "bundle_id": row.bundle_id,
        "sha256": row.sha256,
        "source_hub_id": row.source_hub_id,
        "stream": row.stream,
        "from_seq": row.from_seq,
        "to_seq": row.to_seq,
        "count": row.count,
    }


def failed_fields(
    operator: str, sha256: bytes, of: BundleRow | Claim | None, error: Refused
) -> FailedFields:
    """``of`` is what was verified to be carried, or is claimed, or cannot be known."""
    named = of if isinstance(of, Claim) else None
    if isinstance(of, BundleRow):
        named = Claim(of.bundle_id, of.source_hub_id, of.stream, of.from_seq, of.to_seq)
        sha256 = of.sha256 or sha256
    return {
        "operator": operator,
        "bundle_id": named.bundle_id if named else None,
        "sha256": sha256,
        "source_hub_id": named.source_hub_id if named else None,
        "stream": named.stream if named else None,
        "from_seq": named.from_seq if named else None,
        "to_seq": named.to_seq if named else None,
        "position": named.position(error.seq) if named and error.seq is not None else None,
        "offset": error.offset,
        "is_claimed": isinstance(of, Claim),
    }
