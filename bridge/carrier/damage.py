"""Where a volume is damaged, as near as its hashes tell."""

from __future__ import annotations

import os
from itertools import chain
from typing import NamedTuple

from bridge.carrier.carrier import Carrier
from bridge.carrier.open_bag import Found
from bridge.carrier.span import BLOCK, Piece, Span
from bridge.carrier.volume import HEADER_BYTES, VolumeHeader
from bridge.carrier.watch import Count
from veen.digest import Hasher, h_blocks


class Damage(NamedTuple):
    told: str
    offset: int | None = None


def verify_hash(volume: Found, due: bytes, carrier: Carrier, count: Count) -> Damage | None:
    """What is wrong with a volume that is to have this hash; None where it has."""
    digest, at = Hasher(), 0
    try:
        while block := os.pread(volume.fd, min(BLOCK, volume.size - at), at):
            digest.update(block)
            count.add(len(block))
            at += len(block)
        return None if digest.digest() == due else _locate(volume, due, carrier)
    except OSError as error:
        # A bad sector, or a medium that is gone.
        return Damage(f"cannot be read from byte {at} on: {error.strerror}", at)


def _locate(volume: Found, due: bytes, carrier: Carrier) -> Damage:
    size = volume.size - HEADER_BYTES
    payload = Span([Piece(volume.fd, HEADER_BYTES, size)])
    made = header_of(carrier, volume.header.index, size, h_blocks(payload.blocks()))
    # With the header that goes with its payload, would it be the volume that was written?
    whole = Hasher()
    for block in chain([made], payload.blocks()):
        whole.update(block)
    if whole.digest() != due:
        return Damage(f"is changed between byte {HEADER_BYTES} and its end at {volume.size}")
    pairs = zip(made, os.pread(volume.fd, HEADER_BYTES, 0), strict=True)
    at = next(number for number, (mine, theirs) in enumerate(pairs) if mine != theirs)
    return Damage(f"is changed at byte {at}, in its header", at)


def header_of(carrier: Carrier, index: int, size: int, digest: bytes) -> bytes:
    """The header that a volume with such a payload has in this carrier."""
    made = VolumeHeader(carrier.set_id, index, carrier.data, carrier.parity, size, digest)
    return made.encode()
