"""Sealing and opening a payload of 512 bytes, against the primitives inside."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import sample
from measure import Measurement, compare
from nacl import bindings
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

from veen.payload import open_payload

SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)
AAD = sample.PLACE.aad()
NONCE = sample.PLACE.nonce()
HEADER = sample.HEADER.encode()
KEY_CONTEXT = b"veen/body-k"
MICROSECONDS = 1e6


def measure() -> Iterator[Measurement]:
    sealing = compare(sample.a_ciphertext, _bare_seal, calls=300)
    yield Measurement(
        bench="seal",
        value=sealing.seconds * MICROSECONDS,
        unit="us",
        against="HPKE setup, seal and export, and XChaCha20-Poly1305, bare",
        ratio=sealing.ratio,
    )
    opening = compare(
        partial(
            open_payload,
            private=sample.READER_PRIVATE,
            place=sample.PLACE,
            ciphertext=sample.a_ciphertext(),
            limits=sample.LIMITS,
        ),
        partial(_bare_open, *_bare_seal()),
        calls=300,
    )
    yield Measurement(
        bench="open",
        value=opening.seconds * MICROSECONDS,
        unit="us",
        against="HPKE setup, open and export, and XChaCha20-Poly1305, bare",
        ratio=opening.ratio,
    )


def _bare_seal() -> tuple[bytes, bytes, bytes]:
    """Both sides derive the ephemeral key from given bytes, so both do the same work."""
    recipient = SUITE.kem.deserialize_public_key(sample.READER_PUBLIC)
    ephemeral = SUITE.kem.derive_key_pair(sample.EPHEMERAL)
    enc, context = SUITE.create_sender_context(recipient, eks=ephemeral)
    header = context.seal(HEADER, AAD)
    key = context.export(KEY_CONTEXT, bindings.crypto_aead_xchacha20poly1305_ietf_KEYBYTES)
    encrypt = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt
    return enc, header, encrypt(sample.BODY, AAD, NONCE, key)


def _bare_open(enc: bytes, header: bytes, body: bytes) -> tuple[bytes, bytes]:
    private = SUITE.kem.deserialize_private_key(sample.READER_PRIVATE)
    context = SUITE.create_recipient_context(enc, private)
    plain_header = context.open(header, AAD)
    key = context.export(KEY_CONTEXT, bindings.crypto_aead_xchacha20poly1305_ietf_KEYBYTES)
    decrypt = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt
    return plain_header, decrypt(body, AAD, NONCE, key)
