"""A draft: what is to be sent, before it has a place in a log and a seal (spec 4.5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from veen import aead, attachment, cbor
from veen.digest import ht, u64be
from veen.errors import WrongSize
from veen.keystore.sealed import Randomness
from veen.limits import Limits
from veen.payload import PayloadHdr
from veen.profile import Profile
from veen.schema import Bytes32
from veen.wire import WireMap

_NONCE_BYTES: Final = 24
_FRAME_BYTES: Final = 40
_ATT_ROOT_BYTES: Final = 35
_ENVELOPE_BYTES: Final = 262  # a MSG around its ciphertext, with the longest numbers
_MOST_REMEMBERED_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Form(WireMap):
    """All of a draft but its content; what is sent in one go shares one."""

    stream: str
    profile: Profile
    recipient: Bytes32
    header: PayloadHdr
    auth_ref: Bytes32 | None = None

    def lane(self, hub_id: bytes) -> bytes:
        """What must be sent in order: one stream of one hub, under one profile."""
        return ht("veen/outbox-lane", hub_id, self.profile.profile_id(), self.stream.encode())


@dataclass(frozen=True, slots=True)
class Draft:
    form: Form
    body: bytes = field(repr=False)
    attachments: tuple[bytes, ...] = field(default=(), repr=False)

    def encode(self) -> bytes:
        return self.form.encode() + cbor.dump([self.body, *self.attachments])

    def check_sizes(self, limits: Limits) -> None:
        """Refuse what could never be sent, and would keep all that follows it waiting."""
        attachment.check_sizes(self.attachments, limits)
        body = len(self.body) + aead.TAG_BYTES
        header = len(self.form.header.encode()) + _ATT_ROOT_BYTES + aead.TAG_BYTES
        frame = _FRAME_BYTES + header + body
        if self.form.profile.pad_block:
            frame += -frame % self.form.profile.pad_block
        if body > limits.max_body_bytes or frame + _ENVELOPE_BYTES > limits.max_msg_bytes:
            raise WrongSize(
                f"a body of {len(self.body)} bytes does not fit into one message; "
                "cut it up, or send it as attachments"
            )


class Drafts:
    """Drafts as they lie on a disk: each encrypted, and bound to its number.

    What was sealed here is mostly opened here soon after: it is remembered by its very bytes.
    """

    def __init__(self, key: bytes, random: Randomness) -> None:
        self._key = key
        self._random = random
        self._last: tuple[bytes, Form] | None = None
        self._sealed: dict[tuple[int, bytes], Draft] = {}
        self._room = _MOST_REMEMBERED_BYTES

    def seal(self, number: int, draft: Draft) -> bytes:
        nonce = self._random(_NONCE_BYTES)
        sealed = nonce + aead.encrypt(self._key, nonce, u64be(number), draft.encode())
        self._remember(number, sealed, draft)
        return sealed

    def open(self, number: int, sealed: bytes) -> Draft:
        known = self._sealed.pop((number, sealed), None)
        if known is not None:
            self._room += len(sealed)
            return known
        nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        return self.decode(aead.decrypt(self._key, nonce, u64be(number), body))

    def _remember(self, number: int, sealed: bytes, draft: Draft) -> None:
        if len(sealed) > self._room:
            self._sealed.clear()
            self._room = _MOST_REMEMBERED_BYTES
        if len(sealed) <= self._room:
            self._sealed[number, sealed] = draft
            self._room -= len(sealed)

    def decode(self, raw: bytes) -> Draft:
        """One that has the form of the one before shares it."""
        if self._last is None or not raw.startswith(self._last[0]):
            encoded = raw[: cbor.skip(raw, 0)]
            self._last = encoded, Form.decode(encoded)
        encoded, form = self._last
        count, at = cbor.array(raw, len(encoded))
        content = []
        for _ in range(count):
            one, at = cbor.bstr(raw, at)
            content.append(one)
        cbor.finish(raw, at)
        if not content:
            raise WrongSize("a draft without a body")
        return Draft(form, content[0], tuple(content[1:]))
