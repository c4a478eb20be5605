"""A volume: one part of a carrier, with a header that says which, whatever its file is called."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from veen.errors import Malformed

_HEADER: Final = struct.Struct(">8s32sHHHQ32s")
_MAGIC: Final = b"AGB0VOL\x01"
HEADER_BYTES: Final = _HEADER.size


@dataclass(frozen=True, slots=True)
class VolumeHeader:
    """``index`` counts the ``data`` volumes from 0 and goes on with the ``parity`` volumes."""

    set_id: bytes
    index: int
    data: int
    parity: int
    payload_len: int
    payload_hash: bytes

    def encode(self) -> bytes:
        return _HEADER.pack(
            _MAGIC, self.set_id, self.index, self.data, self.parity,
            self.payload_len, self.payload_hash,
        )  # fmt: skip

    @classmethod
    def decode(cls, raw: bytes) -> VolumeHeader:
        if len(raw) != HEADER_BYTES or not raw.startswith(_MAGIC):
            raise Malformed("not the header of a volume")
        return cls(*_HEADER.unpack(raw)[1:])


def volume_name(index: int, data: int) -> str:
    """v001.agv, v002.agv ... for data, p001.agv ... for parity."""
    return f"v{index + 1:03d}.agv" if index < data else f"p{index - data + 1:03d}.agv"
