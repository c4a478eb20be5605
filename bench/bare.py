"""The primitives no hub can do without: one Ed25519 verification and one signature a message.

Every message has a signature of its own, and so has every verification here: of one and the same
signature a processor learns which way each branch goes, and is some per cent faster than at work.
"""

from __future__ import annotations

import time
from itertools import cycle, islice

import sample

from veen.crypto import signature_is_valid
from veen.digest import h

DIGEST = h(b"digest")
SIGNED = [(digest, sample.CLIENT.sign(digest)) for digest in (h(b"%d" % n) for n in range(2_048))]


def verify(count: int) -> float:
    """Seconds of one bare verification."""
    public, begun = sample.CLIENT.public, time.perf_counter()
    for digest, signature in islice(cycle(SIGNED), count):
        signature_is_valid(public, signature, digest)
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
