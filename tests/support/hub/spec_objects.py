"""The objects of VEEN, written a second time from the specification; nothing of ours is used."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Any

import cbor2
from nacl import bindings
from nacl.exceptions import BadSignatureError
from nacl.public import PrivateKey
from nacl.signing import SigningKey, VerifyKey
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)


def h(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def ht(tag: str, *parts: bytes) -> bytes:
    return h(tag.encode() + b"\x00" + b"".join(parts))


def u64be(n: int) -> bytes:
    return struct.pack(">Q", n)


PROFILE_ID = ht(
    "veen/profile",
    cbor2.dumps(
        {
            1: "xchacha20poly1305", 2: "hkdf-sha256", 3: "ed25519", 4: "x25519",
            5: "X25519-HKDF-SHA256-CHACHA20POLY1305", 6: 0, 7: 0, 8: "sha256",
        }
    ),
)  # fmt: skip


def key(name: str) -> SigningKey:
    return SigningKey(h(name.encode()))


def reader_key(name: str) -> PrivateKey:
    return PrivateKey(h(name.encode()))


def label_of(hub_id: bytes, stream: str, epoch: int = 0) -> bytes:
    routing_key = ht("veen/routing_key", hub_id)
    return ht("veen/label", routing_key, h(stream.encode()), u64be(epoch))


def signed_by(public: bytes, signature: bytes, unsigned: list[Any]) -> bool:
    try:
        VerifyKey(public).verify(ht("veen/sig", cbor2.dumps(unsigned)), signature)
    except BadSignatureError:
        return False
    return True


def _frame(enc: bytes, header: bytes, body: bytes) -> bytes:
    return enc + struct.pack(">II", len(header), len(body)) + header + body


def _place(msg: list[Any]) -> tuple[bytes, bytes]:
    """The aad and the nonce of a message, of which they need all but the ciphertext."""
    _, profile_id, label, client_id, seq, prev_ack, auth_ref, *_ = msg
    aad = ht(
        "veen/aad", profile_id, label, client_id, u64be(seq), u64be(prev_ack),
        auth_ref or bytes(32),
    )  # fmt: skip
    return aad, ht("veen/nonce", label, u64be(prev_ack), client_id, u64be(seq))[:24]


def seal(place: list[Any], reader_pk: bytes, body: bytes) -> bytes:
    aad, nonce = _place(place)
    enc, context = SUITE.create_sender_context(SUITE.kem.deserialize_public_key(reader_pk))
    header = context.seal(cbor2.dumps({1: h(b"test.event.v1")}), aad)
    body_key = context.export(b"veen/body-k", 32)
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(body, aad, nonce, body_key)
    return _frame(enc, header, sealed)


def unseal(msg: list[Any], reader: PrivateKey) -> tuple[dict[int, Any], bytes]:
    aad, nonce = _place(msg)
    ciphertext = msg[8]
    header_len, body_len = struct.unpack(">II", ciphertext[32:40])
    header, body = ciphertext[40 : 40 + header_len], ciphertext[40 + header_len :]
    assert len(body) == body_len
    skr = SUITE.kem.deserialize_private_key(bytes(reader))
    context = SUITE.create_recipient_context(ciphertext[:32], skr)
    opened = cbor2.loads(context.open(header, aad))
    body_key = context.export(b"veen/body-k", 32)
    return opened, bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(body, aad, nonce, body_key)


def leaf_hash(msg: list[Any]) -> bytes:
    return ht("veen/leaf", msg[2], msg[1], msg[7], msg[3], u64be(msg[4]))


@dataclass
class Writer:
    """One client of one label; ``msg`` is the next message, and the one after when called again."""

    key: SigningKey
    label: bytes
    auth_ref: bytes | None = None
    seq: int = 0
    prev_ack: int = 0

    @property
    def client_id(self) -> bytes:
        return bytes(self.key.verify_key)

    def msg(self, body: bytes, reader_pk: bytes | None = None) -> list[Any]:
        """Sealed to a reader; without one, a frame as the hub sees it, for load."""
        self.seq += 1
        place = [1, PROFILE_ID, self.label, self.client_id, self.seq, self.prev_ack, self.auth_ref]
        frame = seal(place, reader_pk, body) if reader_pk else _frame(bytes(32), b"header", body)
        unsigned = [*place, h(frame), frame]
        return [*unsigned, self.key.sign(ht("veen/sig", cbor2.dumps(unsigned))).signature]


def cap_token(
    issuer: SigningKey, subject: bytes, streams: list[str], ttl: int, rate: tuple[int, int] | None
) -> dict[int, Any]:
    allow: dict[int, Any] = {1: sorted(h(name.encode()) for name in streams), 2: ttl}
    if rate is not None:
        allow[3] = {1: rate[0], 2: rate[1]}
    token = {1: 1, 2: bytes(issuer.verify_key), 3: subject, 4: allow}
    link = issuer.sign(ht("veen/cap-link", cbor2.dumps(token), bytes(64))).signature
    return {**token, 5: [link]}


def auth_ref(token: dict[int, Any]) -> bytes:
    return ht("veen/cap", cbor2.dumps(token))


@dataclass
class Mmr:
    """Peaks by increasing height; the height of each follows from the size."""

    size: int = 0
    peaks: list[bytes] = field(default_factory=list)

    def append(self, leaf: bytes) -> bytes:
        """The root once the leaf is in."""
        carried = self.size
        while carried & 1:
            leaf = ht("veen/mmr-node", self.peaks.pop(0), leaf)
            carried >>= 1
        self.peaks.insert(0, leaf)
        self.size += 1
        return root_of(self.peaks)


def root_of(peaks: list[bytes]) -> bytes:
    return peaks[0] if len(peaks) == 1 else ht("veen/mmr-root", *peaks)


def verify_proof(proof: dict[int, Any], root: bytes, seq: int, leaf: bytes) -> None:
    assert list(proof) == [1, 2, 3, 4]
    assert (proof[1], proof[2]) == (1, leaf)
    assert len(proof[3]) == (seq & -seq).bit_length() - 1
    assert len(proof[4]) == seq.bit_count() - 1
    acc = leaf
    for step in proof[3]:
        assert list(step) == [1, 2]
        assert step[1] in (0, 1)
        pair = (acc, step[2]) if step[1] == 0 else (step[2], acc)
        acc = ht("veen/mmr-node", *pair)
    assert root_of([acc, *proof[4]]) == root
