"""Stage 2 of admission: bytes become a Msg, or a refusal (spec 8.1, 8.2, 14.2)."""

from __future__ import annotations

from collections.abc import Mapping

from veen import ciphertext
from veen.errors import Failure, Malformed, Rejected, WrongSize, WrongVersion
from veen.limits import Limits
from veen.msg import Msg
from veen.profile import Profile


def structural(raw: bytes, profiles: Mapping[bytes, Profile], limits: Limits) -> Msg:
    """Checks run in the order of the specification's table; the first failure wins.

    The table does not name the padding, which is checked once the profile is known.
    """
    msg = _decode(raw, limits)
    _check_sizes(msg, limits)
    profile = profiles.get(msg.profile_id)
    if profile is None:
        raise Rejected(Failure.PROFILE, f"profile {msg.profile_id.hex()} is not configured here")
    try:
        ciphertext.check_padding(msg.ciphertext, profile.pad_block)
    except Malformed as error:
        raise Rejected(Failure.PADDING, str(error)) from error
    if not msg.ct_hash_matches():
        raise Rejected(Failure.CT_HASH, "ct_hash is not the hash of the ciphertext")
    return msg


def _check_sizes(msg: Msg, limits: Limits) -> None:
    try:
        ciphertext.check_sizes(msg.ciphertext, limits)
    except WrongSize as error:
        raise Rejected(Failure.FIELD_SIZE, str(error)) from error


def _decode(raw: bytes, limits: Limits) -> Msg:
    try:
        return Msg.decode(raw)
    except WrongSize as error:
        raise Rejected(Failure.FIELD_SIZE, str(error)) from error
    except WrongVersion as error:
        # All sizes come before the version, those inside the ciphertext too.
        _check_sizes(Msg.read(raw, 0)[0], limits)
        raise Rejected(Failure.VERSION, str(error)) from error
    except Malformed as error:
        raise Rejected(Failure.CBOR_INVALID, str(error)) from error
