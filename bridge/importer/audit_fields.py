"""What every audit entry about a bundle tells of it (AGB0 4.6)."""

from __future__ import annotations

from typing import TypedDict

from bridge.importer.ledger_tables import BundleRow


class BundleFields(TypedDict):
    operator: str
    bundle_id: bytes
    sha256: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int
    count: int


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
