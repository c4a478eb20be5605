"""The manifest tree of a label: its sealed segments under one root (spec 3.4.1).

A segment is keyed by (label, epoch, seq range). Its leaf does not say where the chunk is kept, so
the root stays the same when retention prunes and when an archive copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from veen import mmr
from veen.digest import ht, u64be
from veen.errors import Untrusted


class SegmentKey(NamedTuple):
    epoch: int
    start_seq: int
    end_seq: int
    summary_hash: bytes


def manifest_root(label: bytes, segments: Iterable[SegmentKey]) -> bytes:
    """The root over segments in order; Untrusted when they leave a gap or overlap."""
    leaves, due = [], 1
    for one in segments:
        if one.start_seq != due or one.end_seq < one.start_seq:
            raise Untrusted(f"label {label.hex()}: no segment holds stream_seq {due}")
        due = one.end_seq + 1
        key = (u64be(one.epoch), u64be(one.start_seq), u64be(one.end_seq))
        leaves.append(ht("veen/manifest-leaf", label, *key, one.summary_hash))
    return ht("veen/manifest-root", u64be(len(leaves)), *mmr.peaks_of(leaves, _node))


def _node(left: bytes, right: bytes) -> bytes:
    return ht("veen/manifest-node", left, right)
