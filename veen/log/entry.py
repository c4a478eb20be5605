"""Log entries: a MSG with its RECEIPT in a frame (spec 4.8.1), and the records of the control log.

The control log holds the capabilities and streams that a hub was given. A control record is a MSG
of the hub in a label of its own. It is not encrypted: it is the header part of an ordinary
ciphertext frame with an empty body.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from veen.captoken import CapToken
from veen.crypto import SigningKey
from veen.digest import h, ht
from veen.errors import Malformed
from veen.label import DEFAULT_PROFILE, MAX_NAME, Profile, is_name, stream_id
from veen.limits import ENTRY_HEADER_BYTES, MAX_RECEIPT_BYTES, Limits
from veen.msg import Msg
from veen.payload import Ciphertext
from veen.receipt import Receipt
from veen.wire.objects import WireMap
from veen.wire.schema import Version

AUTHORIZE: Final = "authorize"
STREAM: Final = "stream"
_NO_ENC: Final = bytes(32)
_HEADER: Final = struct.Struct(">BB32sQII32s")
_ENTRY_VER: Final = 1
_NO_FLAGS: Final = 0


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
            raise Malformed(f"control record: unknown kind {self.kind!r}")

    def token(self) -> CapToken | None:
        return CapToken.decode(self.body) if self.kind == AUTHORIZE else None

    def streams(self) -> list[StreamRecord]:
        """The streams of this record; those of a capability have an identifier and no name."""
        if self.kind == STREAM:
            return [StreamRecord.decode(self.body)]
        token = CapToken.decode(self.body)
        return [
            StreamRecord(name=identifier.hex(), profile=DEFAULT_PROFILE)
            for identifier in token.allow.stream_ids
        ]

    def msg(self, hub_id: bytes, key: SigningKey, client_seq: int, prev_ack: int) -> Msg:
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
    """A stream of the hub, with the profile of its messages."""

    name: str
    profile: Profile

    def rule(self) -> None:
        if not is_name(self.name):
            raise Malformed(f"stream name: expected 1 to {MAX_NAME} printable characters")

    def stream_id(self) -> bytes:
        return stream_id(self.name)

    def is_nameless(self) -> bool:
        """Whether the stream is known by its identifier alone."""
        return self.name == self.stream_id().hex()


assert _HEADER.size == ENTRY_HEADER_BYTES  # noqa: S101 - a fact of the layout, checked at import


class CutShort(Malformed):
    """An incomplete entry: the torn tail of a log, if it is at its end."""


@dataclass(frozen=True, slots=True)
class EntryHeader:
    label: bytes
    stream_seq: int
    msg_len: int
    receipt_len: int
    entry_hash: bytes

    @property
    def whole_size(self) -> int:
        return ENTRY_HEADER_BYTES + self.msg_len + self.receipt_len

    @classmethod
    def read(cls, raw: bytes, at: int, limits: Limits) -> EntryHeader:
        """The header at ``at``; lengths beyond the limits are refused before they are used."""
        if len(raw) - at < ENTRY_HEADER_BYTES:
            raise CutShort(f"the entry header at byte {at} is truncated")
        ver, flags, *rest = _HEADER.unpack_from(raw, at)
        if ver != _ENTRY_VER or flags != _NO_FLAGS:
            raise Malformed(f"unsupported entry version {ver} with flags {flags}, at byte {at}")
        header = cls(*rest)
        if header.msg_len > limits.max_msg_bytes or header.receipt_len > MAX_RECEIPT_BYTES:
            raise Malformed(
                f"entry too large: {header.whole_size} bytes by its header, at byte {at}"
            )
        return header


@dataclass(frozen=True, slots=True)
class Entry:
    msg_bytes: bytes
    receipt_bytes: bytes

    def entry_hash(self) -> bytes:
        return h(b"veen/entry" + self.msg_bytes + self.receipt_bytes)

    def msg(self) -> Msg:
        return Msg.decode(self.msg_bytes)

    def receipt(self) -> Receipt:
        return Receipt.decode(self.receipt_bytes)

    def encode(self, label: bytes, stream_seq: int) -> bytes:
        return self.frame(label, stream_seq, self.entry_hash())

    def frame(self, label: bytes, stream_seq: int, entry_hash: bytes) -> bytes:
        """The entry in its frame, with a given hash."""
        header = _HEADER.pack(
            _ENTRY_VER, _NO_FLAGS, label, stream_seq,
            len(self.msg_bytes), len(self.receipt_bytes), entry_hash,
        )  # fmt: skip
        return header + self.msg_bytes + self.receipt_bytes


@dataclass(frozen=True, slots=True)
class FramedEntry:
    """An entry with a valid frame: lengths, hash, and header against receipt and message."""

    header: EntryHeader
    msg: Msg
    receipt: Receipt


def read_entry(raw: bytes, at: int, limits: Limits) -> tuple[EntryHeader, Entry]:
    """The entry at ``at`` with its hash checked; it ends at ``at + header.whole_size``."""
    header = EntryHeader.read(raw, at, limits)
    start = at + ENTRY_HEADER_BYTES
    middle = start + header.msg_len
    end = at + header.whole_size
    if end > len(raw):
        raise CutShort(f"the entry at byte {at} is truncated: {end - len(raw)} bytes are missing")
    entry = Entry(raw[start:middle], raw[middle:end])
    if entry.entry_hash() != header.entry_hash:
        raise Malformed(f"entry_hash does not match the entry at byte {at}")
    return header, entry


def open_entry(header: EntryHeader, entry: Entry) -> FramedEntry:
    """Decode both objects of an entry and check them against its header."""
    msg, receipt = entry.msg(), entry.receipt()
    if (receipt.label, receipt.stream_seq) != (header.label, header.stream_seq):
        raise Malformed(f"the receipt is not that of entry {header.stream_seq}")
    if msg.label != header.label:
        raise Malformed(f"the message of entry {header.stream_seq} has another label")
    return FramedEntry(header, msg, receipt)
