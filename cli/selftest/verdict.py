"""The expected error of a message before its sequence is checked (spec 8.1, 8.2).

A second implementation of the admission table, since the hub's own is under test.
"""

from __future__ import annotations

import struct
from typing import Final

from cli.selftest.probe import submit_request
from cli.selftest.world import LIMITS, ROLLING
from veen.digest import h
from veen.errors import Code, Failure, Malformed, WrongSize, WrongVersion
from veen.label import DEFAULT_PROFILE
from veen.msg import Msg
from veen.wire.api import SubmitRequest

_PROFILES: Final = {item.profile_id() for item in (DEFAULT_PROFILE, ROLLING)}
_FRAME: Final = struct.Struct(">32xII")
_ENVELOPE_BYTES: Final = 1_024


def verdict(raw: bytes) -> Failure | Code | None:
    """The first matching row of the admission table, or the error of the request around it."""
    body = submit_request(raw)
    if len(body) > LIMITS.max_msg_bytes + _ENVELOPE_BYTES:
        return Failure.SIZE_PREFILTER
    try:
        inner = SubmitRequest.decode(body).msg
    except Malformed:
        return Code.BAD_REQUEST
    if len(inner) > LIMITS.max_msg_bytes:
        return Failure.SIZE_PREFILTER
    return _structure(inner)


def _structure(raw: bytes) -> Failure | None:
    try:
        msg = Msg.decode(raw)
    except WrongSize:
        return Failure.FIELD_SIZE
    except WrongVersion:
        unchecked, _ = Msg.read(raw, 0)
        return Failure.VERSION if _fits(unchecked.ciphertext) else Failure.FIELD_SIZE
    except Malformed:
        return Failure.CBOR_INVALID
    if not _fits(msg.ciphertext):
        return Failure.FIELD_SIZE
    if msg.profile_id not in _PROFILES:
        return Failure.PROFILE
    if any(_padding(msg.ciphertext)):
        return Failure.PADDING
    if msg.ct_hash != h(msg.ciphertext):
        return Failure.CT_HASH
    return None if msg.signature_is_valid() else Failure.SIG_INVALID


def _padding(ciphertext: bytes) -> bytes:
    """The padding error under profiles without pad_block, like both of these."""
    header, body = (int(item) for item in _FRAME.unpack_from(ciphertext))
    return ciphertext[_FRAME.size + header + body :]


def _fits(ciphertext: bytes) -> bool:
    if not _FRAME.size <= len(ciphertext) <= LIMITS.max_msg_bytes:
        return False
    header, body = (int(item) for item in _FRAME.unpack_from(ciphertext))
    within = header <= LIMITS.max_hdr_bytes and body <= LIMITS.max_body_bytes
    return within and _FRAME.size + header + body <= len(ciphertext)
