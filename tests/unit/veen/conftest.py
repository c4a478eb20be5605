"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.veen.fixtures import (
    a_framed,
    a_msg,
    a_receipt,
    changed_hashes,
    flips,
    hub_key,
    mutated,
    other_tree,
    tree,
)

__all__ = [
    "a_framed",
    "a_msg",
    "a_receipt",
    "changed_hashes",
    "flips",
    "hub_key",
    "mutated",
    "other_tree",
    "tree",
]
