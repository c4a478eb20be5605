"""The control log: what the hub was told, logged like any message so that it can be replayed.

A control record is a MSG by the hub itself in a label of its own. It is not encrypted: it stands
in the header part of an ordinary ciphertext frame, with an empty body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen import sign
from veen.captoken import CapToken
from veen.ciphertext import Ciphertext
from veen.digest import h, ht
from veen.errors import Malformed
from veen.msg import Msg
from veen.profile import DEFAULT_PROFILE, Profile
from veen.schema import Version
from veen.stream import MAX_NAME, is_name, stream_id
from veen.wire import WireMap

AUTHORIZE: Final = "authorize"
STREAM: Final = "stream"
_NO_ENC: Final = bytes(32)


def control_label(hub_id: bytes) -> bytes:
    return ht("veen/control", hub_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord(WireMap):
    ver: Version = 1
    kind: str
    body: bytes

    def rule(self) -> None:
        if self.kind == AUTHORIZE:
            CapToken.decode(self.body)
        elif self.kind == STREAM:
            StreamRecord.decode(self.body)
        else:
            raise Malformed(f"control record of kind {self.kind!r}")

    def token(self) -> CapToken | None:
        return CapToken.decode(self.body) if self.kind == AUTHORIZE else None

    def streams(self) -> list[StreamRecord]:
        """The streams this record makes known; those of a capability by identifier alone."""
        if self.kind == STREAM:
            return [StreamRecord.decode(self.body)]
        token = CapToken.decode(self.body)
        return [
            StreamRecord(name=one.hex(), profile=DEFAULT_PROFILE) for one in token.allow.stream_ids
        ]

    def msg(self, hub_id: bytes, key: sign.PrivateKey, client_seq: int, prev_ack: int) -> Msg:
        ciphertext = Ciphertext(_NO_ENC, self.encode(), b"").encode(0)
        return Msg(
            profile_id=DEFAULT_PROFILE.profile_id(),
            label=control_label(hub_id),
            client_id=key.public,
            client_seq=client_seq,
            prev_ack=prev_ack,
            auth_ref=None,
            ct_hash=h(ciphertext),
            ciphertext=ciphertext,
        ).signed(key)

    @classmethod
    def of(cls, msg: Msg) -> ControlRecord:
        return cls.decode(Ciphertext.decode(msg.ciphertext, 0).header)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord(WireMap):
    """A stream the hub knows by name, with the profile its messages use."""

    name: str
    profile: Profile

    def rule(self) -> None:
        if not is_name(self.name):
            raise Malformed(f"a stream name has 1 to {MAX_NAME} printable characters")

    def stream_id(self) -> bytes:
        return stream_id(self.name)

    def is_nameless(self) -> bool:
        """Whether the stream is known by its identifier only."""
        return self.name == self.stream_id().hex()
