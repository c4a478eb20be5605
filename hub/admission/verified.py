"""A message that has passed prefilter, structure and signature, on its way to the sequencer."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from veen.msg import Msg

_HEAD: Final = struct.Struct(">32s32s32s32s32s?QQI")


class Verified(NamedTuple):
    raw: bytes
    label: bytes
    profile_id: bytes
    client_id: bytes
    client_seq: int
    prev_ack: int
    auth_ref: bytes | None
    leaf_hash: bytes

    @classmethod
    def of(cls, msg: Msg) -> Verified:
        """For a message whose signature and structure hold."""
        return cls(
            msg.encode(),
            msg.label,
            msg.profile_id,
            msg.client_id,
            msg.client_seq,
            msg.prev_ack,
            msg.auth_ref,
            msg.leaf_hash(),
        )

    def pack(self) -> bytes:
        head = _HEAD.pack(
            self.label, self.profile_id, self.client_id, self.leaf_hash,
            self.auth_ref or bytes(32), self.auth_ref is not None,
            self.client_seq, self.prev_ack, len(self.raw),
        )  # fmt: skip
        return head + self.raw

    @classmethod
    def unpack(cls, data: bytes, at: int) -> tuple[Verified, int]:
        label, profile, client, leaf, auth, has_auth, seq, ack, size = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        raw = data[start : start + size]
        auth_ref = auth if has_auth else None
        return cls(raw, label, profile, client, seq, ack, auth_ref, leaf), start + size
