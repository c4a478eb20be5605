"""XChaCha20-Poly1305, which seals bodies and attachments (spec 3.2)."""

from nacl import bindings
from nacl.exceptions import CryptoError

from veen.errors import Undecryptable

KEY_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_KEYBYTES
TAG_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_ABYTES


def encrypt(key: bytes, nonce: bytes, aad: bytes, plaintext: bytes) -> bytes:
    return bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, aad, nonce, key)


def decrypt(key: bytes, nonce: bytes, aad: bytes, ciphertext: bytes) -> bytes:
    if len(ciphertext) < TAG_BYTES:
        raise Undecryptable(f"{len(ciphertext)} bytes are too few for a sealed body or attachment")
    try:
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext, aad, nonce, key)
    except CryptoError as error:
        raise Undecryptable("a body or attachment does not open with this key") from error
