"""Evidence that a source hub signed two histories: receipts or checkpoints that no log has both
of.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bridge.audit_log import CHECKPOINTS, Equivocation
from bridge.bundle import Survey
from bridge.carrier.verify import VerifyContext
from bridge.errors import CarrierRefused
from bridge.importer.checkpoints import Contradiction
from bridge.importer.context import ImportContext
from bridge.importer.examine import LoadedBundle, examined, load
from bridge.importer.ledger import BundleRow, BundleRun
from bridge.importer.outcome import bags_in
from veen.mmr import Peaks
from veen.receipt import Receipt


@dataclass(frozen=True, slots=True)
class RunFork:
    """A disagreement of a held run and a bundle at ``seq``.

    ``other`` is the bundle's receipt of that event or, if the bundle ends before or begins after
    it, of the adjacent event.
    """

    seq: int
    held: BundleRun
    other: Receipt

    @classmethod
    def of(cls, row: BundleRow, loaded: LoadedBundle, seq: int, held: BundleRun) -> RunFork:
        nearest = min(max(seq, row.from_seq), row.to_seq)
        return cls(seq, held, loaded.receipts[nearest - row.from_seq])

    @property
    def is_of_one_place(self) -> bool:
        return self.seq == self.other.stream_seq

    def contradiction(self) -> str:
        """An explanation of the contradiction for people."""
        seq, other = self.seq, self.other.stream_seq
        if self.is_of_one_place:
            return f"the two receipts of event {seq} are signed by the hub, and differ"
        if other > seq:
            return (
                f"the root that the hub signed for event {other} in the other history follows from "
                f"'peaks' and its leaf; 'peaks' are the range at {seq}, and their root is not the "
                f"one that the hub signed for event {seq} in the history that is held"
            )
        return (
            f"the root of 'peaks' is the one that the hub signed for event {other} in the other "
            f"history; with the leaf of event {seq} that is held they do not give the root that "
            "the hub signed for it"
        )


def equivocation(context: ImportContext, row: BundleRow, fork: RunFork) -> Equivocation:
    """The audit entry of a fork."""
    return Equivocation(
        operator=context.operator,
        bundle_id=row.bundle_id,
        source_hub_id=row.source_hub_id,
        stream=row.stream,
        seq=fork.seq,
        held=fork.held.leaf(fork.seq),
        other=fork.other.leaf_hash,
        detail=f"the hub signed two histories of this stream, which part at {fork.seq} or before; "
        "nothing more of it is imported",
        held_seq=fork.seq,
        other_seq=fork.other.stream_seq,
    )


def two_checkpoints(
    context: ImportContext, row: BundleRow | None, contradiction: Contradiction
) -> Equivocation:
    """The audit entry of checkpoints that contradict each other; a heartbeat has no row."""
    return Equivocation(
        operator=context.operator,
        bundle_id=row.bundle_id if row else None,
        source_hub_id=contradiction.held.hub_id,
        stream=contradiction.stream,
        seq=contradiction.seq,
        held=contradiction.held.checkpoint_id,
        other=contradiction.other.checkpoint_id,
        detail=f"the hub signed two histories: {contradiction.detail}; nothing of the other one is "
        "imported",
        of=CHECKPOINTS,
    )


def checkpoint_evidence(contradiction: Contradiction) -> dict[str, object]:
    """Evidence for the reason file: both checkpoints as signed by the hub."""
    both = {"held": contradiction.held, "other": contradiction.other}
    return {
        "stream": contradiction.stream,
        "seq": contradiction.seq,
        "contradiction": contradiction.detail,
        **{
            name: {
                "checkpoint_id": checkpoint.checkpoint_id.hex(),
                "created_at": checkpoint.created_at,
                "checkpoint": checkpoint.encode().hex(),
            }
            for name, checkpoint in both.items()
        },
    }


def evidence(
    row: BundleRow, loaded: LoadedBundle, survey: Survey, fork: RunFork, receipt: Receipt | None
) -> dict[str, object]:
    """Evidence for the reason file; ``receipt`` is the held receipt.

    That is also in the import stream, if the archive is gone. Header and proof are those of the
    bundle: they lead from ``peaks`` to the checkpoint that the hub signed.
    """
    document: dict[str, object] = {
        "seq": fork.seq,
        "contradiction": fork.contradiction(),
        "held": {
            "seq": fork.seq,
            "bundle_id": fork.held.bundle_id.hex(),
            "leaf_hash": fork.held.leaf(fork.seq).hex(),
            "mmr_root": fork.held.root(fork.seq).hex(),
            "receipt": receipt.encode().hex() if receipt else None,
        },
        "other": {
            "seq": fork.other.stream_seq,
            "bundle_id": row.bundle_id.hex(),
            "leaf_hash": fork.other.leaf_hash.hex(),
            "mmr_root": fork.other.mmr_root.hex(),
            "receipt": fork.other.encode().hex(),
        },
        "header": survey.header.encode().hex(),
        "proof": survey.proof.encode().hex(),
    }
    if not fork.is_of_one_place:
        document["peaks"] = [hash_.hex() for hash_ in _between(loaded, survey, fork).hashes]
    return document


def _between(loaded: LoadedBundle, survey: Survey, fork: RunFork) -> Peaks:
    """The peaks of the other history after the earlier of two adjacent events."""
    peaks = survey.proof.before()
    if fork.other.stream_seq < fork.seq:
        for receipt in loaded.receipts:
            peaks = peaks.append(receipt.leaf_hash)
    return peaks


def archived_receipt(
    archive: Path, held: BundleRun, seq: int, verify_context: VerifyContext
) -> Receipt | None:
    """The receipt of an imported event, from the archive; None if it is gone."""
    place = archive / held.bundle_id.hex()
    if not place.is_dir():
        return None
    try:
        with examined(bags_in(place), verify_context) as carrier:
            if carrier.report.bundle is None:
                return None
            receipts = load(carrier.content, carrier.report.bundle, verify_context.watch).receipts
    except CarrierRefused:
        return None
    return next((receipt for receipt in receipts if receipt.stream_seq == seq), None)
