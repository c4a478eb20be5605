"""Sealing a payload to its reader, and opening it again (spec 4.2, 4.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from veen import aead, attachment, hpke
from veen.ciphertext import Ciphertext, check_sizes
from veen.digest import ht, trunc24, u64be
from veen.errors import BadSeal, Malformed, Undecryptable, Unopenable, Untrusted
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr
from veen.profile import Profile

_NO_AUTH_REF = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a payload belongs; the seal holds for this place and no other."""

    profile: Profile
    label: bytes
    client_id: bytes
    client_seq: int
    prev_ack: int
    auth_ref: bytes | None

    @classmethod
    def of(cls, msg: Msg, profile: Profile) -> Place:
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

    ``body_key`` opens this body and nothing else: it can be given to whoever may read this one.
    """

    header: PayloadHdr
    body: bytes
    keys: attachment.Keys
    body_key: bytes = field(repr=False)

    def attachments(self, sealed: Sequence[bytes], limits: Limits) -> tuple[bytes, ...]:
        """The attachments in the clear, once they are shown to be those of the header."""
        attachment.verify_root(self.header.att_root, sealed, limits)
        return tuple(self.keys.open(i, one) for i, one in enumerate(sealed))


def seal(
    *,
    recipient: bytes,
    ephemeral: bytes,
    place: Place,
    header: PayloadHdr,
    body: bytes,
    attachments: Sequence[bytes] = (),
    limits: Limits,
) -> Sealed:
    """Seal a payload; ``ephemeral`` is 32 fresh random bytes. The att_root is filled in here."""
    if header.att_root is not None:
        raise Malformed("att_root is computed from the attachments, not given")
    attachment.check_sizes(attachments, limits)
    aad = place.aad()
    sender = hpke.Sender(recipient, ephemeral)
    keys = attachment.Keys(sender, aad)
    sealed = tuple(keys.seal(i, one) for i, one in enumerate(attachments))
    if sealed:
        header = replace(header, att_root=attachment.root(sealed))
    parts = Ciphertext(
        sender.enc,
        sender.seal(aad, header.encode()),
        aead.encrypt(_body_key(sender), place.nonce(), aad, body),
    )
    ciphertext = parts.encode(place.profile.pad_block)
    check_sizes(ciphertext, limits)
    return Sealed(ciphertext, sealed)


def open_payload(*, private: bytes, place: Place, ciphertext: bytes, limits: Limits) -> Opened:
    """Open what was sealed to ``private`` for ``place``."""
    check_sizes(ciphertext, limits)
    parts = Ciphertext.decode(ciphertext, place.profile.pad_block)
    aad = place.aad()
    context = hpke.Recipient(parts.enc, private)
    header = PayloadHdr.decode(context.open(aad, parts.header))
    if header.cap_ref is not None and header.cap_ref != place.auth_ref:
        raise Untrusted("cap_ref names another capability than auth_ref")
    body_key = _body_key(context)
    body = aead.decrypt(body_key, place.nonce(), aad, parts.body)
    return Opened(header, body, attachment.Keys(context, aad), body_key)


def open_msg(*, private: bytes, msg: Msg, profile: Profile, limits: Limits) -> Opened:
    """Open the payload of a message; Unopenable is the only way in which this fails.

    BadSeal says that no other key need be tried, Undecryptable that another may open it.
    """
    with _only_unopenable():
        _verify_ct_hash(msg)
        place = Place.of(msg, profile)
        return open_payload(private=private, place=place, ciphertext=msg.ciphertext, limits=limits)


def open_with_any(keys: list[bytes], msg: Msg, profile: Profile, limits: Limits) -> Opened:
    """Open the payload of a message with whichever of these keys does, or raise Unopenable.

    The key that opened it is moved to the front: the next message is most often sealed to it too.
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
    """Open the body of a message with the key that whoever opened it gave away, or Unopenable."""
    with _only_unopenable():
        _verify_ct_hash(msg)
        place, parts = Place.of(msg, profile), Ciphertext.decode(msg.ciphertext, profile.pad_block)
        return aead.decrypt(body_key, place.nonce(), place.aad(), parts.body)


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


def _body_key(context: hpke.Exporter) -> bytes:
    return context.export(b"veen/body-k", aead.KEY_BYTES)
