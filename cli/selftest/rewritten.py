"""A log that was rewritten: whole in itself, every receipt and proof made anew (I2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from cli.selftest import naive
from recorder.replay.source import HubSource
from veen.client.pair import Pair
from veen.digest import h
from veen.errors import Undecryptable
from veen.hub_identity import HubIdentity
from veen.range_proof import RangeProof
from veen.seal import Opened

Edit = Callable[[list[Pair], int], list[Pair]]


def changed(pairs: list[Pair], at: int) -> list[Pair]:
    """Another text in the place of one."""
    old = pairs[at].msg
    text = old.ciphertext[:-1] + bytes([old.ciphertext[-1] ^ 1])
    new = replace(old, ciphertext=text, ct_hash=h(text))
    return [*pairs[:at], Pair(new, pairs[at].receipt), *pairs[at + 1 :]]


def left_out(pairs: list[Pair], at: int) -> list[Pair]:
    """Without one, and something else at the end so that the number is right."""
    return [*pairs[:at], *pairs[at + 1 :], pairs[at - 1]]


def moved(pairs: list[Pair], at: int) -> list[Pair]:
    """One in the place of its neighbour."""
    other = at - 1 if at else at + 1
    found = list(pairs)
    found[at], found[other] = found[other], found[at]
    return found


def added(pairs: list[Pair], at: int) -> list[Pair]:
    """The one before it a second time; the last falls off the end."""
    return [*pairs[:at], pairs[at - 1], *pairs[at:-1]]


EDITS = {
    "changed": changed, "left out": left_out, "moved": moved, "put in a second time": added,
}  # fmt: skip


class RewrittenSource:
    """What a hub would show that rewrote one stream: numbers, roots and proofs go together."""

    def __init__(self, honest: HubSource, pairs: list[Pair]) -> None:
        self._honest = honest
        leaves = [one.msg.leaf_hash() for one in pairs]
        self._tree = naive.Tree(leaves)
        self._pairs = [_placed(one, leaves[:seq]) for seq, one in enumerate(pairs, start=1)]

    @property
    def hub(self) -> HubIdentity:
        return self._honest.hub

    def identity_sig(self) -> bytes:
        return self._honest.identity_sig()

    def pages(self, _: str, from_seq: int, to_seq: int) -> Iterator[tuple[Pair, ...]]:
        yield tuple(self._pairs[from_seq - 1 : to_seq])

    def range_proof(self, _: str, from_seq: int, to_seq: int, size: int) -> RangeProof:
        return RangeProof.build(self._tree, from_seq, to_seq, size)

    def first_at(self, stream: str, hub_ts: int) -> int | None:
        return self._honest.first_at(stream, hub_ts)

    def head_seq(self, _: str) -> int:
        return len(self._pairs)

    def open_pair(self, pair: Pair) -> Opened:
        raise Undecryptable(f"nothing of a rewritten log is opened, as {pair.receipt.stream_seq}")


def _placed(pair: Pair, leaves: list[bytes]) -> Pair:
    receipt = replace(
        pair.receipt, stream_seq=len(leaves), leaf_hash=leaves[-1], mmr_root=naive.root(leaves)
    )
    return Pair(pair.msg, receipt)
