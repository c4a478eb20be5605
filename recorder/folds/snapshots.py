"""State snapshots in a stream, located and verified against an archive (profiles, 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from recorder.folds.job import FoldJob, FoldResult
from recorder.folds.log import ArchivedLog, NotArchived
from recorder.folds.source import FoldReader
from veen.errors import Malformed
from veen.log.entry import FramedEntry
from veen.overlay.fold import SeqRun
from veen.overlay.snapshot import OVERLAYS, SCHEMA, Mismatch, StateCheckpoint, first_mismatch

Folding = Callable[[FoldJob], FoldResult]
"""An engine that runs a fold job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a snapshot must be of; None accepts the snapshot's own claim."""

    state_class: str | None = None
    state_id: bytes | None = None
    upto_seq: int | None = None

    def is_met_by(self, claim: StateCheckpoint) -> bool:
        pairs = (
            (self.state_class, claim.state_class),
            (self.state_id, claim.state_id),
            (self.upto_seq, claim.upto_stream_seq),
        )
        return all(expected in (None, claimed) for expected, claimed in pairs)


@dataclass(frozen=True, slots=True)
class SnapshotVerdict:
    claim: StateCheckpoint
    mismatch: Mismatch | None

    def document(self) -> dict[str, Any]:
        claim, mismatch = self.claim, self.mismatch
        return {
            "consistent": mismatch is None,
            "state_class": claim.state_class,
            "state_id": claim.state_id.hex(),
            "upto_stream_seq": claim.upto_stream_seq,
            "mmr_root": claim.mmr_root.hex(),
            "state_hash": claim.state_hash.hex(),
            "first_mismatch": None
            if mismatch is None
            else {
                "field": mismatch.field,
                "claimed": mismatch.claimed,
                "computed": mismatch.computed,
            },
        }


def verify(
    claim: StateCheckpoint, expected: Expected, order: FoldJob, end_seq: int, folding: Folding
) -> SnapshotVerdict:
    """Fold as the snapshot was folded, and compare; ``order`` names the label."""
    overlay = expected.state_class or claim.state_class
    upto = expected.upto_seq or claim.upto_stream_seq
    known = [known_overlay.name for known_overlay in OVERLAYS]
    if overlay not in known:
        return SnapshotVerdict(
            claim, Mismatch("state_class", overlay, f"one of {', '.join(known)}")
        )
    if upto > end_seq:
        return SnapshotVerdict(
            claim, Mismatch("upto_stream_seq", str(upto), f"an end at {end_seq}")
        )
    prefix = folding(replace(order, overlay=overlay, run=SeqRun(1, upto))).prefix()
    state_id = claim.state_id if expected.state_id is None else expected.state_id
    return SnapshotVerdict(claim, first_mismatch(claim, prefix, state_id))


def find(log: ArchivedLog, reader: FoldReader, expected: Expected) -> StateCheckpoint:
    """Return the latest snapshot in a stream that matches ``expected`` (7.5, S1)."""
    for run in _backwards(log.end_seq, log.block):
        claims = [
            claim
            for entry in log.entries(run)
            if (claim := _claim(reader, entry)) is not None and expected.is_met_by(claim)
        ]
        if claims:
            return claims[-1]
    raise NotArchived(f"label {log.label.hex()} has no such snapshot that this reader can open")


def _claim(reader: FoldReader, entry: FramedEntry) -> StateCheckpoint | None:
    event = reader.event(entry.msg, entry.receipt)
    if event.schema != SCHEMA:
        return None
    try:
        return StateCheckpoint.decode(event.body)
    except Malformed:
        return None


def _backwards(end_seq: int, block: int) -> Iterator[SeqRun]:
    while end_seq:
        start = (end_seq - 1) // block * block + 1
        yield SeqRun(start, end_seq)
        end_seq = start - 1
