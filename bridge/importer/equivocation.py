"""Evidence that a source hub has signed two histories: the receipts of both, side by side."""

from __future__ import annotations

from pathlib import Path

from bridge.audit_events import Equivocation
from bridge.carrier.check import Means
from bridge.importer.examine import Loaded, examined, load
from bridge.importer.ledger_tables import BundleRow, Run
from bridge.importer.tools import Tools
from bridge.importer.work import bags_in
from bridge.refusal import Refused
from veen.receipt import Receipt


def equivocation(tools: Tools, row: BundleRow, loaded: Loaded, seq: int, held: Run) -> Equivocation:
    """The audit entry: at ``seq`` the run that is held and the bundle do not agree."""
    other = loaded.receipts[_nearest(row, seq) - row.from_seq]
    return Equivocation(
        operator=tools.operator,
        bundle_id=row.bundle_id,
        source_hub_id=row.source_hub_id,
        stream=row.stream,
        seq=seq,
        held=held.leaf(seq),
        other=other.leaf_hash,
        told=f"the hub signed two histories of this stream, which part at {seq} or before; "
        "nothing more of it is imported",
    )


def evidence(
    row: BundleRow, loaded: Loaded, seq: int, held: Run, receipt: Receipt | None
) -> dict[str, object]:
    """For the file beside the bundle. Both receipts are signed by the hub, and cannot both hold.

    The receipt that is held stands also in the import stream, whatever became of the archive.
    """
    other = loaded.receipts[_nearest(row, seq) - row.from_seq]
    return {
        "seq": seq,
        "held": {
            "bundle_id": held.bundle_id.hex(),
            "leaf_hash": held.leaf(seq).hex(),
            "mmr_root": held.root(seq).hex(),
            "receipt": receipt.encode().hex() if receipt else None,
        },
        "other": {
            "bundle_id": row.bundle_id.hex(),
            "leaf_hash": other.leaf_hash.hex(),
            "mmr_root": other.mmr_root.hex(),
            "receipt": other.encode().hex(),
        },
    }


def archived_receipt(archive: Path, held: Run, seq: int, means: Means) -> Receipt | None:
    """The receipt of an event that was imported, from the archive; None when it is gone."""
    place = archive / held.bundle_id.hex()
    if not place.is_dir():
        return None
    try:
        with examined(bags_in(place), means) as found:
            if found.report.bundle is None:
                return None
            receipts = load(found.content, found.report.bundle).receipts
    except Refused:
        return None
    return next((one for one in receipts if one.stream_seq == seq), None)


def _nearest(row: BundleRow, seq: int) -> int:
    """The event of the bundle that speaks of a place: it, or the one next to it."""
    return min(max(seq, row.from_seq), row.to_seq)
