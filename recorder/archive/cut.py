"""What of a label belongs to a prefix of it: up to a hub_ts, or all."""

from __future__ import annotations

from dataclasses import dataclass

from recorder.archive.manifest import LabelManifest, Piece, Segment, Tail
from veen import layout
from veen.audit import leaves
from veen.errors import VeenError


class CannotCut(VeenError):
    """The archive does not hold what this prefix needs."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Sealed chunks that stay as they are, and the one that is open after the cut."""

    segments: tuple[Segment, ...]
    opened: Segment | Tail | None


def kept_until(label: LabelManifest, at: int | None) -> Kept:
    """The parts of a label with entries of at most hub_ts ``at``; times never go back."""
    whole = [one for one in label.segments if at is None or one.last_ts <= at]
    rest = label.parts[len(whole) :]
    opened = rest[0] if rest and (at is None or rest[0].first_ts <= at) else None
    if isinstance(opened, Segment) and opened.is_pruned:
        raise CannotCut(
            f"{layout.chunk(opened.name(label.label))} was pruned before it was archived: "
            f"cut before hub_ts {opened.first_ts} or from {opened.last_ts} on"
        )
    return Kept(tuple(whole), opened)


def pieces_until(label: LabelManifest, segments: tuple[Segment, ...], end_seq: int) -> list[Piece]:
    """The files that stand beside the entries up to ``end_seq``."""
    names = [one.name(label.label) for one in segments]
    ranged = {
        kind(one) for one in names for kind in (layout.summary, leaves.tombstone, leaves.leaves)
    }
    return [
        piece
        for piece in label.pieces
        if piece.name in ranged or 0 < _upto(label.label, piece.name) <= end_seq
    ]


def _upto(label: bytes, name: str) -> int:
    """The size at which a checkpoint or a peaks snapshot stands; 0 for other files."""
    found = layout.parse_checkpoint(name.replace("log/peaks-", "log/checkpoint-", 1))
    return found.upto_seq if found is not None and found.label == label else 0
