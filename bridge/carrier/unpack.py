"""From the bytes of a carrier's volumes to what they carry: unsealed and unpacked (AGB0 4.5)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.bundle import BundleLimits
from bridge.carrier import compression
from bridge.carrier.carrier import ZSTD, Carrier
from bridge.carrier.encryption import unseal
from bridge.carrier.ledger import Ledger
from bridge.carrier.span import Piece, Span, copy_blocks
from bridge.carrier.watch import Count, Watch, unwatched
from bridge.refusal import Fault, Refused
from veen import cbor
from veen.errors import Malformed

_MAX_LEDGER: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Cargo:
    """What is carried, and the ledger whose last entry says what it should be."""

    ledger: Ledger
    content: Span


@contextmanager
def unpacked(
    carrier: Carrier,
    stored: Span,
    privates: Sequence[bytes],
    scratch: Path,
    most: int = BundleLimits().max_bytes,
    watch: Watch = unwatched,
) -> Iterator[Cargo]:
    """The cargo of volumes whose hashes and signature hold; it needs room below ``scratch``.

    One that says itself that it is more than ``most`` bytes is not unpacked at all.
    """
    if carrier.encryption is None and carrier.compression is None:
        yield _cargo(carrier, stored)
        return
    plain_len = carrier.compression.plain_len if carrier.compression else carrier.stored_len
    if plain_len > most + _MAX_LEDGER:
        raise Refused(Fault.BUNDLE_SIZE, f"{plain_len} bytes unpacked; {most} are allowed")
    path = scratch / "unpacked"
    with path.open("x+b") as file:
        # It lives as long as it is open.
        path.unlink()
        with watch("unpacking", "bytes") as progress:
            count = Count(stored.size, progress)
            copy_blocks(_plain(carrier, count.through(stored.blocks()), privates), file)
        file.flush()
        size = os.fstat(file.fileno()).st_size
        yield _cargo(carrier, Span([Piece(file.fileno(), 0, size)]))


def _plain(carrier: Carrier, blocks: Iterator[bytes], privates: Sequence[bytes]) -> Iterator[bytes]:
    if carrier.encryption is not None:
        blocks = unseal(carrier.encryption, privates, blocks)
    packed = carrier.compression
    if packed is None:
        return blocks
    if packed.alg != ZSTD:
        raise Refused(Fault.CARRIER_VERSION, "it is packed in a way that needs a newer version")
    compression.verify_ratio(carrier.stored_len, packed.plain_len)
    return compression.decompress(blocks, packed.plain_len)


def _cargo(carrier: Carrier, plain: Span) -> Cargo:
    if carrier.ledger is not None:
        return Cargo(carrier.ledger, plain)
    raw = plain.part(0, _MAX_LEDGER).read()
    try:
        end = cbor.skip(raw, 0)
        ledger = Ledger.decode(raw[:end])
    except Malformed as error:
        raise Refused(Fault.CARRIER_FORMAT, f"the sealed ledger: {error}") from error
    if not ledger.tail:
        raise Refused(Fault.CARRIER_FORMAT, "the sealed ledger is empty")
    return Cargo(ledger, plain.part(end, plain.size))
