"""The primitives no hub can do without: one Ed25519 verification and one signature a message."""

from __future__ import annotations

import time

import sample

from veen import sign
from veen.digest import h

DIGEST = h(b"digest")
SIGNATURE = sample.CLIENT.sign(DIGEST)


def verify(count: int) -> float:
    """Seconds of one bare verification."""
    public, begun = sample.CLIENT.public, time.perf_counter()
    for _ in range(count):
        sign.is_valid(public, SIGNATURE, DIGEST)
    return (time.perf_counter() - begun) / count


def issue(count: int) -> float:
    """Seconds of one bare signature."""
    begun = time.perf_counter()
    for _ in range(count):
        sample.CLIENT.sign(DIGEST)
    return (time.perf_counter() - begun) / count


def both(count: int) -> float:
    """Seconds that one message costs whoever checks one signature and makes another."""
    return verify(count) + issue(count)


def both_with_cpu(count: int) -> tuple[float, float]:
    """The same, and the CPU time of it."""
    cpu = time.process_time()
    seconds = both(count)
    return seconds, (time.process_time() - cpu) / count
