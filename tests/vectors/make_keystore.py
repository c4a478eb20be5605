"""Make keystore.json, the golden vectors of a client's directory, or check it with --check.

Nothing here uses the library under test: CBOR and hashes are those of veen_cases, Ed25519, X25519
and Argon2id are OpenSSL's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from vector_file import write_vectors
from veen_cases.formulas import (
    cbor,
    ed25519_public,
    ed25519_sign,
    ht,
    u64be,
    x25519_public,
    xchacha,
)

TARGET = Path(__file__).with_name("keystore.json")
SOURCE = "Made by make_keystore.py from the layouts of docs/adr/0021-client-keystore.md"
YEAR = 365 * 86_400
CREATED, ROTATED = 1_700_000_000, 1_700_086_400
KEYS = {
    name: bytes([number]) * 32
    for number, name in enumerate(
        ("id_sign", "id_dh", "client", "prekey", "outbox", "client_2", "prekey_2"), 1
    )
}
PASSPHRASE = b"correct horse battery staple"
SALT, NONCE = bytes(range(16)), bytes(range(24))
PASSES, MEMORY = 2, 65_536


def prekey(private: bytes, expires_at: int) -> dict[int, Any]:
    public = x25519_public(private)
    owner = ed25519_public(KEYS["id_sign"])
    digest = ht("veen/prekey", owner + public + u64be(expires_at))
    return {1: public, 2: expires_at, 3: ed25519_sign(KEYS["id_sign"], digest)}


def card(client: bytes, prekey_private: bytes, created_at: int) -> bytes:
    unsigned = {
        1: 1,
        2: ed25519_public(KEYS["id_sign"]),
        3: x25519_public(KEYS["id_dh"]),
        4: ed25519_public(client),
        5: [prekey(prekey_private, created_at + YEAR)],
        6: created_at,
    }
    digest = ht("veen/identity-card", cbor(unsigned))
    by_client, by_owner = ed25519_sign(client, digest), ed25519_sign(KEYS["id_sign"], digest)
    result: bytes = cbor({**unsigned, 7: by_client, 8: by_owner})
    return result


def secrets() -> bytes:
    """What the keystore holds after one rotation."""
    result: bytes = cbor(
        {
            1: 1,
            2: KEYS["id_sign"],
            3: KEYS["id_dh"],
            4: {1: KEYS["client_2"], 2: ROTATED},
            5: [{1: ed25519_public(KEYS["client"]), 2: CREATED, 3: ROTATED}],
            6: [
                {1: KEYS["prekey"], 2: CREATED, 3: CREATED + YEAR},
                {1: KEYS["prekey_2"], 2: ROTATED, 3: ROTATED + YEAR},
            ],
            7: KEYS["outbox"],
        }
    )
    return result


def sealed(key: bytes, header: dict[int, Any]) -> bytes:
    result: bytes = cbor({**header, 6: NONCE, 7: xchacha(key, NONCE, cbor(header), secrets())})
    return result


def keystore() -> bytes:
    kdf = Argon2id(salt=SALT, length=32, iterations=PASSES, lanes=1, memory_cost=MEMORY // 1024)
    return sealed(kdf.derive(PASSPHRASE), {1: 1, 2: "argon2id", 3: SALT, 4: PASSES, 5: MEMORY})


def plain_keystore() -> bytes:
    key = ht("veen/keystore-plain", SALT)
    return sealed(key, {1: 1, 2: "plain", 3: SALT, 4: 0, 5: 0})


def generate() -> str:
    document = {
        "source": SOURCE,
        "created_at": CREATED,
        "rotated_at": ROTATED,
        "keys": KEYS,
        "prekey": cbor(prekey(KEYS["prekey"], CREATED + YEAR)),
        "card": card(KEYS["client"], KEYS["prekey"], CREATED),
        "rotated_card": card(KEYS["client_2"], KEYS["prekey_2"], ROTATED),
        "passphrase": PASSPHRASE,
        "secrets": secrets(),
        "keystore": keystore(),
        "plain_keystore": plain_keystore(),
    }
    return json.dumps(document, indent=1, default=bytes.hex) + "\n"


if __name__ == "__main__":
    write_vectors(TARGET, generate())
