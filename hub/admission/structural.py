"""Stage 2 of admission: bytes become a Msg, or a refusal (spec 8.1, 8.2, 14.2)."""

from __future__ import annotations

from collections.abc import Container

from veen import ciphertext
from veen.errors import Failure, Malformed, Rejected, WrongSize, WrongVersion
from veen.limits import Limits
from veen.msg import Msg


def structural(raw: bytes, profiles: Container[bytes], limits: Limits) -> Msg:
    """Checks run in the order of the specification's table; the first failure wins."""
    msg = _decode(raw)
    try:
        ciphertext.check_sizes(msg.ciphertext, limits)
    except WrongSize as error:
        raise Rejected(Failure.FIELD_SIZE, str(error)) from error
    if msg.profile_id not in profiles:
        raise Rejected(Failure.PROFILE, f"profile {msg.profile_id.hex()} is not configured here")
    if not msg.ct_hash_matches():
        raise Rejected(Failure.CT_HASH, "ct_hash is not the hash of the ciphertext")
    return msg


def _decode(raw: bytes) -> Msg:
    try:
        return Msg.decode(raw)
    except WrongSize as error:
        raise Rejected(Failure.FIELD_SIZE, str(error)) from error
    except WrongVersion as error:
        raise Rejected(Failure.VERSION, str(error)) from error
    except Malformed as error:
        raise Rejected(Failure.CBOR_INVALID, str(error)) from error
