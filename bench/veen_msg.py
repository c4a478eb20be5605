"""Reading and checking one MSG with a payload of 512 bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import cbor2
import sample
from measure import Measurement, compare

from veen.crypto import signature_is_valid
from veen.msg import Msg

MICROSECONDS = 1e6


def measure() -> Iterator[Measurement]:
    raw = sample.a_msg().encode()
    decoding = compare(partial(Msg.decode, raw), partial(cbor2.loads, raw), calls=4_000)
    yield Measurement(
        bench="msg_decode",
        value=decoding.seconds * MICROSECONDS,
        unit="us",
        against="cbor2.loads of the same bytes",
        ratio=decoding.ratio,
        at_most=12,
    )
    checking = compare(partial(_check, raw), _bare_verification(raw), calls=1_000)
    yield Measurement(
        bench="msg_check",
        value=checking.seconds * MICROSECONDS,
        unit="us",
        against="the signature verification alone",
        ratio=checking.ratio,
        at_most=1.25,
    )


def _check(raw: bytes) -> bytes:
    """What every message costs a verifier: decode, ct_hash, leaf, signature."""
    msg = Msg.decode(raw)
    if not (msg.ct_hash_matches() and msg.signature_is_valid()):
        raise AssertionError("the sample message does not hold")
    return msg.leaf_hash()


def _bare_verification(raw: bytes) -> partial[bool]:
    msg = Msg.decode(raw)
    digest = msg._signing_digest()
    return partial(signature_is_valid, msg.client_id, msg.sig, digest)
