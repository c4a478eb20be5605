"""Builders that the tests of the protocol share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import strategies as st

from veen import mmr
from veen.crypto import SigningKey
from veen.label import DEFAULT_PROFILE, derive_label, hub_id, routing_key, stream_id
from veen.log.entry import Entry
from veen.msg import Msg
from veen.receipt import Receipt

HUB = SigningKey(b"hub key seed".ljust(32, b"."))
CLIENT = SigningKey(b"client key seed".ljust(32, b"."))
STREAM = stream_id("record/test")
LABEL = derive_label(routing_key(hub_id(HUB.public)), STREAM, 0)
# The smallest ciphertext a frame can have: enc, and a header and body of no bytes.
CIPHERTEXT = bytes(range(32)) + bytes(8)


class Tree:
    """Every node of a range by its definition: perfect binary trees over a list of leaves."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.node = lru_cache(maxsize=None)(self._node)

    def leaf(self, seq: int) -> bytes:
        return sha256(f"{self._tag} {seq}".encode()).digest()

    def leaves(self, first: int, last: int) -> list[bytes]:
        return [self.leaf(seq) for seq in range(first, last + 1)]

    def root(self, size: int) -> bytes:
        return mmr.peaks_at(self, size).root()

    def _node(self, height: int, index: int) -> bytes:
        if height == 0:
            return self.leaf(index + 1)
        left, right = self.node(height - 1, 2 * index), self.node(height - 1, 2 * index + 1)
        return sha256(b"veen/mmr-node\x00" + left + right).digest()


@pytest.fixture(scope="session")
def tree() -> Tree:
    return Tree("a leaf")


@pytest.fixture(scope="session")
def other_tree() -> Tree:
    """The range of another label."""
    return Tree("a leaf of another label")


@pytest.fixture(scope="session")
def changed_hashes() -> Callable[[tuple[Any, ...]], Iterator[tuple[Any, ...]]]:
    """Every single change of a list of distinct hashes, but for bits: see ``flips``."""

    def changes(hashes: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        for i in range(len(hashes)):
            yield hashes[:i] + hashes[i + 1 :]
            yield hashes[: i + 1] + hashes[i:]
            for j in range(i + 1, len(hashes)):
                swapped = list(hashes)
                swapped[i], swapped[j] = swapped[j], swapped[i]
                yield tuple(swapped)

    return changes


@pytest.fixture(scope="session")
def flips() -> Callable[[bytes], Iterator[bytes]]:
    """``data`` with each of its bits flipped in turn."""

    def flipped(data: bytes) -> Iterator[bytes]:
        number = int.from_bytes(data, "big")
        for bit in range(8 * len(data)):
            yield (number ^ (1 << bit)).to_bytes(len(data), "big")

    return flipped


@pytest.fixture(scope="session")
def mutated() -> Callable[[Any, bytes], bytes]:
    """Bytes drawn near to valid ones: flipped, inserted, deleted, cut or spliced."""

    def mutate(data: st.DataObject, raw: bytes) -> bytes:
        at = data.draw(st.integers(0, max(0, len(raw) - 1)))
        end = data.draw(st.integers(at, len(raw)))
        new = data.draw(st.binary(max_size=9))
        bit = data.draw(st.integers(0, 7))
        flipped = raw[:at] + bytes(byte ^ (1 << bit) for byte in raw[at : at + 1]) + raw[at + 1 :]
        choices = (flipped, raw[:at] + new + raw[at:], raw[:at] + raw[end:], raw[:at], raw + new)
        spliced = raw[:at] + raw[end:] + raw[at:end]
        return data.draw(st.sampled_from((*choices, raw[:at] + new + raw[end:], spliced)))

    return mutate


@pytest.fixture(scope="session")
def hub_key() -> SigningKey:
    return HUB


@pytest.fixture(scope="session")
def a_msg() -> Callable[..., Msg]:
    """A valid message; a test names only what it changes."""

    def build(*, key: SigningKey = CLIENT, **changes: Any) -> Msg:
        ciphertext = changes.get("ciphertext", CIPHERTEXT)
        plain = Msg(
            profile_id=DEFAULT_PROFILE.profile_id(),
            label=LABEL,
            client_id=key.public,
            client_seq=1,
            prev_ack=0,
            auth_ref=None,
            ct_hash=sha256(ciphertext).digest(),
            ciphertext=ciphertext,
        )
        return replace(plain, **changes).signed(key)

    return build


@pytest.fixture(scope="session")
def a_receipt() -> Callable[..., Receipt]:
    """The hub's receipt for a message, by default the first of its label."""

    def build(msg: Msg, *, key: SigningKey = HUB, **changes: Any) -> Receipt:
        leaf = msg.leaf_hash()
        plain = Receipt(
            label=msg.label, stream_seq=1, leaf_hash=leaf, mmr_root=leaf, hub_ts=1_700_000_000
        )
        return replace(plain, **changes).signed(key)

    return build


@dataclass(frozen=True)
class Framed:
    """An entry of the log as it lies on disk, and what it was made of."""

    raw: bytes
    entry: Entry


@pytest.fixture(scope="session")
def a_framed(a_msg: Callable[..., Msg], a_receipt: Callable[..., Receipt]) -> Callable[..., Framed]:
    def build(stream_seq: int = 1, **changes: Any) -> Framed:
        msg = a_msg(client_seq=stream_seq, **changes)
        receipt = a_receipt(msg, stream_seq=stream_seq)
        entry = Entry(msg.encode(), receipt.encode())
        return Framed(entry.encode(msg.label, stream_seq), entry)

    return build
