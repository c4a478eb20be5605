"""The frame of a ciphertext: enc, two lengths, header, body, padding (spec 4.2, 14.2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from veen.errors import Malformed, WrongSize
from veen.hpke import ENC_BYTES
from veen.limits import Limits

_FRAME: Final = struct.Struct(f">{ENC_BYTES}sII")


@dataclass(frozen=True, slots=True)
class Ciphertext:
    enc: bytes
    header: bytes
    body: bytes

    def encode(self, pad_block: int) -> bytes:
        lengths = _FRAME.pack(self.enc, len(self.header), len(self.body))
        frame = lengths + self.header + self.body
        return frame + bytes(-len(frame) % pad_block) if pad_block else frame

    @classmethod
    def decode(cls, raw: bytes, pad_block: int) -> Ciphertext:
        """The parts of ``raw``; trailing zeros are padding, anything else is refused."""
        if len(raw) < _FRAME.size:
            raise Malformed(f"a ciphertext of {len(raw)} bytes, at least {_FRAME.size} are due")
        enc, header_size, body_size = _FRAME.unpack_from(raw)
        body_start = _FRAME.size + header_size
        end = body_start + body_size
        if end > len(raw):
            raise Malformed(f"the ciphertext announces {end} bytes and has {len(raw)}")
        _check_padding(raw, end, pad_block)
        return cls(enc, raw[_FRAME.size : body_start], raw[body_start:end])


def check_padding(raw: bytes, pad_block: int) -> None:
    """The rules of padding, which need no key (D23). The sizes must have been checked before."""
    _, header_size, body_size = _FRAME.unpack_from(raw)
    _check_padding(raw, _FRAME.size + header_size + body_size, pad_block)


def _check_padding(raw: bytes, end: int, pad_block: int) -> None:
    if pad_block and len(raw) % pad_block:
        raise Malformed(f"{len(raw)} bytes are not a multiple of pad_block {pad_block}")
    if raw.count(0, end) != len(raw) - end:
        raise Malformed("padding that is not zero")


def check_sizes(raw: bytes, limits: Limits) -> None:
    """The sizes a hub may see without a key; WrongSize when one is not allowed."""
    if len(raw) > limits.max_msg_bytes or len(raw) < _FRAME.size:
        raise WrongSize(f"a ciphertext of {len(raw)} bytes")
    _, header_size, body_size = _FRAME.unpack_from(raw)
    if header_size > limits.max_hdr_bytes:
        raise WrongSize(f"header of {header_size} bytes, {limits.max_hdr_bytes} are allowed")
    if body_size > limits.max_body_bytes:
        raise WrongSize(f"body of {body_size} bytes, {limits.max_body_bytes} are allowed")
    if _FRAME.size + header_size + body_size > len(raw):
        raise WrongSize(f"the ciphertext announces more than its {len(raw)} bytes")
