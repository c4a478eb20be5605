"""No byte of a bundle can be changed, left out or added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from support.bridge import bridge_world
from support.long_form import LONG
from veen.wire.cbor import skip

Verdict = Callable[[bytes], str]
CHANGED = {"E.SIG/BUNDLE_ID", "E.FORMAT/FRAMING", "E.SEQ/COUNT", "E.SIZE/BUNDLE_SIZE"}


@pytest.fixture(scope="module")
def small() -> bytes:
    """Three events: with metadata and key, with metadata alone, with neither."""
    world = bridge_world.World().grow(2)
    world.grow(1, disclose=False).grow(1, tell=False, disclose=False)
    raw: bytes = world.grow(1).bundle(2, 4)
    return raw


def test_the_bundle_is_valid(small: bytes, bundle_verdict: Verdict) -> None:
    assert bundle_verdict(small) == "valid"


def test_refuses_every_flipped_byte(small: bytes, bundle_verdict: Verdict) -> None:
    masks = [1 << bit for bit in range(8)]
    counter = Counter(
        bundle_verdict(small[:at] + bytes([small[at] ^ mask]) + small[at + 1 :])
        for at in range(len(small))
        for mask in (masks if LONG else masks[at % 8 : at % 8 + 1])
    )
    assert counter.keys() <= CHANGED
    assert counter["E.SIG/BUNDLE_ID"] > counter["E.FORMAT/FRAMING"] > 100


def test_a_byte_inside_a_string_changes_nothing_but_the_hash(
    small: bytes, bundle_verdict: Verdict
) -> None:
    at = skip(small, 1) + 20
    assert (
        bundle_verdict(small[:at] + bytes([small[at] ^ 1]) + small[at + 1 :]) == "E.SIG/BUNDLE_ID"
    )


def test_refuses_every_truncation(small: bytes, bundle_verdict: Verdict) -> None:
    assert {bundle_verdict(small[:size]) for size in range(len(small))} == {"E.FORMAT/FRAMING"}


@pytest.mark.parametrize("more", [b"\x00", b"\xf6", bytes(1 << 20)])
def test_refuses_bytes_behind_the_end(small: bytes, bundle_verdict: Verdict, more: bytes) -> None:
    assert bundle_verdict(small + more) == "E.FORMAT/FRAMING"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x83",
        b"\x9f\xff",
        b"\x83\xbf\xff",
        b"\x83" + b"\x81" * 100_000,
        b"\x83\xbb" + b"\xff" * 8,
        b"\x83\x9b" + b"\xff" * 8,
        b"\x83\x5b" + b"\xff" * 8,
        b"\x83\x5a\xff\xff\xff\xff" + bytes(1000),
    ],
)
def test_refuses_bombs(raw: bytes, bundle_verdict: Verdict) -> None:
    assert bundle_verdict(raw) == "E.FORMAT/FRAMING"
