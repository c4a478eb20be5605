"""Payloads: sealing, opening, the ciphertext frame and attachments (spec 4.2, 4.5, 4.6).

A ciphertext is enc, two lengths, the sealed header (``PayloadHdr``), the sealed body and padding
(spec 14.2). Attachments are sealed one by one, and att_root commits to all of them. Their nonce is
bound to the message's aad, not to its msg_id, which depends on att_root and so on the nonce; each
key is unique to its message and index in any case.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from veen import mmr
from veen.crypto import (
    AEAD_KEY_BYTES,
    AEAD_TAG_BYTES,
    HPKE_ENC_BYTES,
    HpkeExporter,
    HpkeRecipient,
    HpkeSender,
    aead_decrypt,
    aead_encrypt,
)
from veen.digest import h, ht, trunc24, u64be
from veen.errors import BadSeal, Malformed, Undecryptable, Unopenable, Untrusted, WrongSize
from veen.label import Profile
from veen.limits import Limits
from veen.msg import Msg
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32

_FRAME: Final = struct.Struct(f">{HPKE_ENC_BYTES}sII")
_NO_AUTH_REF = bytes(32)


class AttachmentKeys:
    """Key and nonce of each attachment of one message."""

    def __init__(self, context: HpkeExporter, aad: bytes) -> None:
        self._context = context
        self._aad = aad

    def seal(self, index: int, plaintext: bytes) -> bytes:
        return aead_encrypt(self._key(index), self._nonce(index), b"", plaintext)

    def open(self, index: int, ciphertext: bytes) -> bytes:
        return aead_decrypt(self._key(index), self._nonce(index), b"", ciphertext)

    def _key(self, index: int) -> bytes:
        return self._context.export(b"veen/att-k" + u64be(index), AEAD_KEY_BYTES)

    def _nonce(self, index: int) -> bytes:
        return trunc24(ht("veen/att-nonce", self._aad, u64be(index)))


def attachment_coid(ciphertext: bytes) -> bytes:
    """The content identifier of one sealed attachment."""
    return h(ciphertext)


def attachment_root(sealed: Sequence[bytes]) -> bytes:
    """att_root over sealed attachments in order; hashed also for one peak or none."""
    peaks = mmr.peaks_of((attachment_coid(attachment) for attachment in sealed), _node)
    return ht("veen/att-root", *peaks)


def verify_attachment_root(att_root: bytes | None, sealed: Sequence[bytes], limits: Limits) -> None:
    """Raise Untrusted for attachments that the header does not commit to."""
    _check_sizes(sealed, limits, limits.max_attachment_bytes + AEAD_TAG_BYTES)
    if att_root is None and not sealed:
        return
    if att_root != attachment_root(sealed):
        raise Untrusted(f"att_root is not the root of these {len(sealed)} attachments")


def check_attachment_sizes(attachments: Sequence[bytes], limits: Limits) -> None:
    """Check number and sizes of attachments before they are sealed (spec 14.2)."""
    _check_sizes(attachments, limits, limits.max_attachment_bytes)


def _check_sizes(attachments: Sequence[bytes], limits: Limits, max_bytes: int) -> None:
    if len(attachments) > limits.max_attachments_per_msg:
        raise WrongSize(
            f"expected at most {limits.max_attachments_per_msg} attachments, got {len(attachments)}"
        )
    for index, attachment in enumerate(attachments):
        if len(attachment) > max_bytes:
            raise WrongSize(f"attachment {index} is too large: {len(attachment)} bytes")


def _node(left: bytes, right: bytes) -> bytes:
    return ht("veen/att-node", left, right)


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
            raise Malformed(f"ciphertext: expected at least {_FRAME.size} bytes, got {len(raw)}")
        enc, header_size, body_size = _FRAME.unpack_from(raw)
        body_start = _FRAME.size + header_size
        end = body_start + body_size
        if end > len(raw):
            raise Malformed(f"ciphertext: expected {end} bytes by its lengths, got {len(raw)}")
        check_ciphertext_padding(raw, pad_block)
        return cls(enc, raw[_FRAME.size : body_start], raw[body_start:end])


def check_ciphertext_padding(raw: bytes, pad_block: int) -> None:
    """Check the padding, which needs no key (D23). The sizes must have been checked before."""
    _, header_size, body_size = _FRAME.unpack_from(raw)
    end = _FRAME.size + header_size + body_size
    if pad_block and len(raw) % pad_block:
        raise Malformed(
            f"ciphertext: expected a multiple of pad_block {pad_block}, got {len(raw)} bytes"
        )
    if raw.count(0, end) != len(raw) - end:
        raise Malformed("ciphertext: expected zero bytes as padding, got others")


def check_ciphertext_sizes(raw: bytes, limits: Limits) -> None:
    """Check the sizes that a hub sees without a key; WrongSize if one is not allowed."""
    if len(raw) > limits.max_msg_bytes or len(raw) < _FRAME.size:
        raise WrongSize(
            f"ciphertext: expected {_FRAME.size} to {limits.max_msg_bytes} bytes, got {len(raw)}"
        )
    _, header_size, body_size = _FRAME.unpack_from(raw)
    if header_size > limits.max_hdr_bytes:
        raise WrongSize(f"header: expected at most {limits.max_hdr_bytes} bytes, got {header_size}")
    if body_size > limits.max_body_bytes:
        raise WrongSize(f"body: expected at most {limits.max_body_bytes} bytes, got {body_size}")
    if _FRAME.size + header_size + body_size > len(raw):
        raise WrongSize(f"ciphertext: its lengths go beyond its {len(raw)} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadHdr(WireMap):
    schema: Bytes32
    parent_id: Bytes32 | None = None
    att_root: Bytes32 | None = None
    cap_ref: Bytes32 | None = None
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealPlace:
    """The place of a payload, which its seal is bound to."""

    profile: Profile
    label: bytes
    client_id: bytes
    client_seq: int
    prev_ack: int
    auth_ref: bytes | None

    @classmethod
    def of(cls, msg: Msg, profile: Profile) -> SealPlace:
        if msg.profile_id != profile.profile_id():
            raise Untrusted("the message was sealed under another profile")
        return cls(
            profile=profile,
            label=msg.label,
            client_id=msg.client_id,
            client_seq=msg.client_seq,
            prev_ack=msg.prev_ack,
            auth_ref=msg.auth_ref,
        )

    def aad(self) -> bytes:
        return ht(
            "veen/aad",
            self.profile.profile_id(), self.label, self.client_id,
            u64be(self.client_seq), u64be(self.prev_ack), self.auth_ref or _NO_AUTH_REF,
        )  # fmt: skip

    def nonce(self) -> bytes:
        return trunc24(
            ht(
                "veen/nonce",
                self.label, u64be(self.prev_ack), self.client_id, u64be(self.client_seq),
            )
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sealed:
    ciphertext: bytes
    attachments: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A payload whose header and body are authentic; attachments are opened one by one.

    ``body_key`` opens this body and nothing else, so it can be disclosed to a reader of it.
    """

    header: PayloadHdr
    body: bytes
    keys: AttachmentKeys
    body_key: bytes = field(repr=False)

    def attachments(self, sealed: Sequence[bytes], limits: Limits) -> tuple[bytes, ...]:
        """The plaintext of attachments, verified to be those of the header."""
        verify_attachment_root(self.header.att_root, sealed, limits)
        return tuple(self.keys.open(i, attachment) for i, attachment in enumerate(sealed))


def seal_payload(
    *,
    recipient: bytes,
    ephemeral: bytes,
    place: SealPlace,
    header: PayloadHdr,
    body: bytes,
    attachments: Sequence[bytes] = (),
    limits: Limits,
) -> Sealed:
    """Seal a payload and fill in its att_root; ``ephemeral`` is 32 new random bytes."""
    if header.att_root is not None:
        raise Malformed(
            "expected no att_root in the header before sealing, got one; it is computed from the "
            "attachments"
        )
    aad = place.aad()
    sender = HpkeSender(recipient, ephemeral)
    sealed: tuple[bytes, ...] = ()
    if attachments:
        check_attachment_sizes(attachments, limits)
        keys = AttachmentKeys(sender, aad)
        sealed = tuple(keys.seal(i, attachment) for i, attachment in enumerate(attachments))
        header = replace(header, att_root=attachment_root(sealed))
    parts = Ciphertext(
        sender.enc,
        sender.seal(aad, header.encode()),
        aead_encrypt(_body_key(sender), place.nonce(), aad, body),
    )
    ciphertext = parts.encode(place.profile.pad_block)
    check_ciphertext_sizes(ciphertext, limits)
    return Sealed(ciphertext, sealed)


def open_payload(*, private: bytes, place: SealPlace, ciphertext: bytes, limits: Limits) -> Opened:
    """Open what was sealed to ``private`` for ``place``."""
    check_ciphertext_sizes(ciphertext, limits)
    parts = Ciphertext.decode(ciphertext, place.profile.pad_block)
    aad = place.aad()
    context = HpkeRecipient(parts.enc, private)
    header = PayloadHdr.decode(context.open(aad, parts.header))
    if header.cap_ref is not None and header.cap_ref != place.auth_ref:
        raise Untrusted("cap_ref names another capability than auth_ref")
    body_key = _body_key(context)
    body = aead_decrypt(body_key, place.nonce(), aad, parts.body)
    return Opened(header, body, AttachmentKeys(context, aad), body_key)


def open_msg(*, private: bytes, msg: Msg, profile: Profile, limits: Limits) -> Opened:
    """Open the payload of a message; Unopenable is the only error.

    BadSeal means that no key opens it, Undecryptable that another may.
    """
    with _only_unopenable():
        _verify_ct_hash(msg)
        place = SealPlace.of(msg, profile)
        return open_payload(private=private, place=place, ciphertext=msg.ciphertext, limits=limits)


def open_with_any(keys: list[bytes], msg: Msg, profile: Profile, limits: Limits) -> Opened:
    """Open the payload of a message with one of these keys, or raise Unopenable.

    The key that opened it is moved to the front: the next message is usually sealed to it, too.
    """
    for number, private in enumerate(keys):
        try:
            opened = open_msg(private=private, msg=msg, profile=profile, limits=limits)
        except Undecryptable:
            continue
        keys.insert(0, keys.pop(number))
        return opened
    raise Undecryptable(f"the message is not sealed to any of the {len(keys)} keys at hand")


def open_body(*, body_key: bytes, msg: Msg, profile: Profile) -> bytes:
    """Open the body of a message with a disclosed body key, or raise Unopenable."""
    with _only_unopenable():
        _verify_ct_hash(msg)
        place = SealPlace.of(msg, profile)
        parts = Ciphertext.decode(msg.ciphertext, profile.pad_block)
        return aead_decrypt(body_key, place.nonce(), place.aad(), parts.body)


def _verify_ct_hash(msg: Msg) -> None:
    if not msg.ct_hash_matches():
        raise Untrusted("ct_hash is not the hash of the ciphertext")


@contextmanager
def _only_unopenable() -> Iterator[None]:
    try:
        yield
    except Unopenable:
        raise
    except (Malformed, Untrusted) as error:
        raise BadSeal(str(error)) from error


def _body_key(context: HpkeExporter) -> bytes:
    return context.export(b"veen/body-k", AEAD_KEY_BYTES)
