"""The range of leaves as the specification draws it, built the slow way: a second opinion (5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from veen.digest import ht


def subtree(leaves: Sequence[bytes]) -> bytes:
    """The node above 2^h leaves."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    return ht("veen/mmr-node", subtree(leaves[:half]), subtree(leaves[half:]))


def peaks(leaves: Sequence[bytes]) -> list[bytes]:
    """By increasing height: the largest trees stand first among the leaves."""
    found: list[bytes] = []
    start = 0
    for height in reversed(range(len(leaves).bit_length())):
        if len(leaves) >> height & 1:
            end = start + (1 << height)
            found.insert(0, subtree(leaves[start:end]))
            start = end
    return found


def root(leaves: Sequence[bytes]) -> bytes:
    found = peaks(leaves)
    return found[0] if len(found) == 1 else ht("veen/mmr-root", *found)


class Tree:
    """Every node, computed from the leaves whenever it is asked for."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.leaves = leaves

    def node(self, height: int, index: int) -> bytes:
        return subtree(self.leaves[index << height : (index + 1) << height])

    def root_at(self, size: int) -> bytes:
        return root(self.leaves[:size])
