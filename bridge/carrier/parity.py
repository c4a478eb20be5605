"""Parity volumes: Reed-Solomon over GF(256), stripe by stripe, so that lost volumes come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import zfec

STRIPE: Final = 1 << 16


class Payload(Protocol):
    """The payload of a volume, at any offset; behind its end there are zeros."""

    def block(self, at: int, size: int) -> bytes: ...


def encode(data: Sequence[Payload], parity: int, size: int) -> Iterator[tuple[bytes, ...]]:
    """For each stripe of volumes of ``size`` bytes, the blocks of all parity volumes."""
    k = len(data)
    coder = zfec.Encoder(k, k + parity)
    wanted = tuple(range(k, k + parity))
    for at in range(0, size, STRIPE):
        length = min(STRIPE, size - at)
        yield tuple(coder.encode(tuple(one.block(at, length) for one in data), wanted))


def rebuild(
    present: Mapping[int, Payload], data: int, parity: int, size: int
) -> Iterator[tuple[bytes, ...]]:
    """For each stripe, the blocks of all data volumes, from any ``data`` volumes by index."""
    coder = zfec.Decoder(data, data + parity)
    chosen = sorted(present)[:data]
    for at in range(0, size, STRIPE):
        length = min(STRIPE, size - at)
        blocks = tuple(present[index].block(at, length) for index in chosen)
        yield tuple(coder.decode(blocks, tuple(chosen)))
