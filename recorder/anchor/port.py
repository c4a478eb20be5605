"""The port to a place outside of the hub that remembers roots (ANCHOR0.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from veen import cbor
from veen.digest import ht, u64be
from veen.errors import Malformed, VeenError


class AnchorUnavailable(VeenError):
    """The place did not answer, or not with an anchor; later it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """What an anchor_ref was found to prove: this root was known to ``witness`` by ``time``.

    ``epoch``, ``ts`` and ``nonce`` are what was published with the root; ``time`` is the word of
    the witness, in seconds.
    """

    kind: str
    root: bytes
    epoch: int
    ts: int
    nonce: bytes
    time: int
    witness: str
    place: str


class Anchor(Protocol):
    @property
    def kind(self) -> str:
        """One word for this sort of anchor; every anchor_ref of it carries the word."""

    def publish(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Have the root remembered; the anchor_ref on return proves it for ever. Raises
        AnchorUnavailable when nothing, or nothing that can be shown, was remembered. Publishing
        the same again is allowed and gives another anchor_ref."""

    def verify(self, root: bytes, anchor_ref: bytes) -> Anchored:
        """What the anchor_ref proves of this root, without asking anyone over a network;
        Untrusted when it does not, Malformed when it is none."""


def anchor_digest(root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
    """The one value that stands for all that is published."""
    return ht("veen/anchor", root, u64be(epoch), u64be(ts), nonce)


def kind_of(anchor_ref: bytes) -> str:
    """The kind that an anchor_ref names; nothing else of it is believed."""
    found = cbor.decode(anchor_ref)
    kind = found.get(2) if isinstance(found, dict) else None
    if not isinstance(kind, str):
        raise Malformed("not an anchor_ref: it names no kind of anchor")
    return kind
