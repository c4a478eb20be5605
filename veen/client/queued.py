"""Queued messages, and the attempts to submit them at a sequence position (spec 4.5).

A ``QueuedMessage`` has no position and no seal yet; ``QueueCipher`` encrypts it for the outbox. A
``SubmitAttempt`` is a sealed message for a client_seq; ``InFlight`` has all attempts at it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from veen.crypto import AEAD_TAG_BYTES, aead_decrypt, aead_encrypt
from veen.digest import ht, u64be
from veen.errors import WrongSize
from veen.keystore.sealed import Randomness
from veen.label import Profile
from veen.limits import Limits
from veen.payload import PayloadHdr, check_attachment_sizes
from veen.wire import cbor
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32

_NONCE_BYTES: Final = 24
_FRAME_BYTES: Final = 40
_ATT_ROOT_BYTES: Final = 35
_ENVELOPE_BYTES: Final = 262  # a MSG around its ciphertext, with the longest numbers
_MOST_CACHED_BYTES: Final = 8 << 20
_COID_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTemplate(WireMap):
    """All of a queued message but its content; messages sent together share it."""

    stream: str
    profile: Profile
    recipient: Bytes32
    header: PayloadHdr
    auth_ref: Bytes32 | None = None

    def queue(self, hub_id: bytes) -> bytes:
        """The key of a queue that is sent in order: hub, profile and stream."""
        return ht("veen/outbox-lane", hub_id, self.profile.profile_id(), self.stream.encode())


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    template: MessageTemplate
    body: bytes = field(repr=False)
    attachments: tuple[bytes, ...] = field(default=(), repr=False)

    def encode(self) -> bytes:
        return self.template.encode() + cbor.dump([self.body, *self.attachments])

    def check_sizes(self, limits: Limits) -> None:
        """Raise WrongSize for what could never be sent, and would block what follows it."""
        if self.attachments:
            check_attachment_sizes(self.attachments, limits)
        body = len(self.body) + AEAD_TAG_BYTES
        header = len(self.template.header.encode()) + _ATT_ROOT_BYTES + AEAD_TAG_BYTES
        frame = _FRAME_BYTES + header + body
        if self.template.profile.pad_block:
            frame += -frame % self.template.profile.pad_block
        if body > limits.max_body_bytes or frame + _ENVELOPE_BYTES > limits.max_msg_bytes:
            raise WrongSize(
                f"a body of {len(self.body)} bytes does not fit into one message; "
                "split it, or send it as attachments"
            )


class QueueCipher:
    """Encrypts queued messages at rest, each bound to its event id.

    What is sealed is usually opened soon after, so messages are cached until ``forget``.
    """

    def __init__(self, key: bytes, random: Randomness) -> None:
        self._key = key
        self._random = random
        self._last: tuple[bytes, MessageTemplate] | None = None
        self._cache: dict[int, tuple[bytes, QueuedMessage]] = {}
        self._room = _MOST_CACHED_BYTES

    def seal(self, number: int, message: QueuedMessage) -> bytes:
        nonce = self._random(_NONCE_BYTES)
        sealed = nonce + aead_encrypt(self._key, nonce, u64be(number), message.encode())
        if len(sealed) > self._room:
            self._cache.clear()
            self._room = _MOST_CACHED_BYTES
        if len(sealed) <= self._room:
            self._cache[number] = sealed, message
            self._room -= len(sealed)
        return sealed

    def open(self, number: int, sealed: bytes) -> QueuedMessage:
        known, message = self._cache.get(number, (None, None))
        if message is not None and known == sealed:
            return message
        nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        return self.decode(aead_decrypt(self._key, nonce, u64be(number), body))

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove messages from the cache; they are not opened again."""
        for number in numbers:
            sealed, _ = self._cache.pop(number, (b"", None))
            self._room += len(sealed)

    def decode(self, raw: bytes) -> QueuedMessage:
        """Decode a message; consecutive messages share a template."""
        if self._last is None or not raw.startswith(self._last[0]):
            encoded = raw[: cbor.skip(raw, 0)]
            self._last = encoded, MessageTemplate.decode(encoded)
        encoded, template = self._last
        count, at = cbor.array(raw, len(encoded))
        content = []
        for _ in range(count):
            part, at = cbor.bstr(raw, at)
            content.append(part)
        cbor.finish(raw, at)
        if not content:
            raise WrongSize("expected a body in the queued message, got none")
        return QueuedMessage(template, content[0], tuple(content[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitAttempt:
    """A sealed message for a client_seq; ``withdrawn`` if its event was withdrawn."""

    event_id: int
    label: bytes
    epoch: int
    client_id: bytes
    client_seq: int
    prev_ack: int
    auth_ref: bytes | None
    leaf: bytes
    coids: bytes
    msg: bytes = field(repr=False)
    withdrawn: bool = False

    def attachment_ids(self) -> tuple[bytes, ...]:
        starts = range(0, len(self.coids), _COID_BYTES)
        return tuple(self.coids[at : at + _COID_BYTES] for at in starts)


@dataclass(frozen=True, slots=True)
class InFlight:
    """A client_seq of a client in a label, with every attempt at it.

    The last attempt is sent; the hub can have accepted any of them, but at most one.
    """

    attempts: tuple[SubmitAttempt, ...]

    @property
    def current(self) -> SubmitAttempt:
        return self.attempts[-1]

    @property
    def is_shared(self) -> bool:
        """Whether a withdrawn event may have been accepted at this position."""
        return any(attempt.withdrawn for attempt in self.attempts)

    def attempt(self, leaf: bytes) -> SubmitAttempt | None:
        return next((attempt for attempt in self.attempts if attempt.leaf == leaf), None)

    def again(self, attempt: SubmitAttempt) -> InFlight:
        """The slot with one more attempt at it."""
        return replace(self, attempts=(*self.attempts, attempt))
