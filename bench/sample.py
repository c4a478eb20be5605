"""What the benchmarks measure with: one client, one reader, one sealed message."""

from __future__ import annotations

from veen.crypto import SigningKey, hpke_public_key
from veen.digest import h
from veen.label import DEFAULT_PROFILE, derive_label
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr, SealPlace, seal_payload

CLIENT = SigningKey(h(b"client"))
READER_PRIVATE = h(b"reader")
READER_PUBLIC = hpke_public_key(READER_PRIVATE)
EPHEMERAL = h(b"ephemeral")
LIMITS = Limits()
HEADER = PayloadHdr(schema=h(b"record.event.v1"))
BODY = bytes(range(256)) * 2
PLACE = SealPlace(
    profile=DEFAULT_PROFILE,
    label=derive_label(h(b"routing"), h(b"stream"), 0),
    client_id=CLIENT.public,
    client_seq=1_000_000,
    prev_ack=999_999,
    auth_ref=h(b"capability"),
)


def a_ciphertext() -> bytes:
    return seal_payload(
        recipient=READER_PUBLIC,
        ephemeral=EPHEMERAL,
        place=PLACE,
        header=HEADER,
        body=BODY,
        limits=LIMITS,
    ).ciphertext


def a_msg() -> Msg:
    """A signed message with a sealed body of 512 bytes."""
    ciphertext = a_ciphertext()
    return Msg(
        profile_id=PLACE.profile.profile_id(),
        label=PLACE.label,
        client_id=PLACE.client_id,
        client_seq=PLACE.client_seq,
        prev_ack=PLACE.prev_ack,
        auth_ref=PLACE.auth_ref,
        ct_hash=h(ciphertext),
        ciphertext=ciphertext,
    ).signed(CLIENT)
