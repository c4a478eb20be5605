"""Make bundle.json, golden vectors of a bundle and its carrier, or check it with --check.

Everything is written out from the description of the format. Nothing here uses the library under
test.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from nacl import bindings
from vector_file import write_vectors
from veen_cases.formulas import cbor, ed25519_public, h, ht, u64be

TARGET = Path(__file__).with_name("bundle.json")
HUB, CLIENT, EXPORTER = h(b"vector hub"), h(b"vector client"), h(b"vector exporter")
STREAM, PROFILE_ID, START = "export/vector", h(b"vector profile"), 1_700_000_000
FIRST, LAST, SIZE = 3, 5, 7
DEFAULT_PROFILE = {
    1: "xchacha20poly1305", 2: "hkdf-sha256", 3: "ed25519", 4: "x25519",
    5: "X25519-HKDF-SHA256-CHACHA20POLY1305", 6: 0, 7: 0, 8: "sha256",
}  # fmt: skip


def sign(seed: bytes, digest: bytes) -> bytes:
    _, secret = bindings.crypto_sign_seed_keypair(seed)
    return bindings.crypto_sign(digest, secret)[:64]


def hub_id() -> bytes:
    result: bytes = ht("veen/hub-id", ed25519_public(HUB))
    return result


def label() -> bytes:
    result: bytes = ht(
        "veen/label", ht("veen/routing_key", hub_id()) + h(STREAM.encode()) + u64be(0)
    )
    return result


def body(seq: int) -> dict[str, Any]:
    """The fields of an event in the order of their encoded names."""
    return {
        "origin": "vector",
        "payload": {"n": seq},
        "event_time": (START + seq) * 1000 + 7,
        "event_type": "vector.made",
        "subject_id": f"subject {seq}",
        "principal_id": ed25519_public(CLIENT),
    }


def body_key(seq: int) -> bytes:
    result: bytes = h(b"body key" + bytes([seq]))
    return result


def message(seq: int) -> list[Any]:
    """A MSG whose body has a key of its own; its header nobody opens here."""
    client, profile = ed25519_public(CLIENT), ht("veen/profile", cbor(DEFAULT_PROFILE))
    place = label() + client + u64be(seq) + u64be(seq - 1)
    aad = ht("veen/aad", profile + place + bytes(32))
    nonce = ht("veen/nonce", label() + u64be(seq - 1) + client + u64be(seq))[:24]
    seal = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt
    sealed = seal(cbor(body(seq)), aad, nonce, body_key(seq))
    header = b"a header that stays closed"
    ciphertext = h(b"enc") + struct.pack(">II", len(header), len(sealed)) + header + sealed
    fields = [1, profile, label(), client, seq, seq - 1, None, h(ciphertext), ciphertext]
    return [*fields, sign(CLIENT, ht("veen/sig", cbor(fields)))]


def leaf(msg: list[Any]) -> bytes:
    result: bytes = ht("veen/leaf", msg[2] + msg[1] + msg[7] + msg[3] + u64be(msg[4]))
    return result


def tree(leaves: list[bytes]) -> bytes:
    """The root of a complete tree, by halves."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    result: bytes = ht("veen/mmr-node", tree(leaves[:half]) + tree(leaves[half:]))
    return result


def peaks(leaves: list[bytes]) -> list[bytes]:
    """The peaks from left to right, by the bits of the size."""
    result, at = [], 0
    for height in reversed(range(len(leaves).bit_length())):
        if len(leaves) >> height & 1:
            result.append(tree(leaves[at : at + (1 << height)]))
            at += 1 << height
    return result


def root(leaves: list[bytes]) -> bytes:
    result = peaks(leaves)
    return result[0] if len(result) == 1 else ht("veen/mmr-root", b"".join(result[::-1]))


def receipt(seq: int, leaves: list[bytes]) -> list[Any]:
    fields = [1, label(), seq, leaves[seq - 1], root(leaves[:seq]), START + seq]
    return [*fields, sign(HUB, ht("veen/sig", cbor(fields)))]


def checkpoint(leaves: list[bytes]) -> dict[int, Any]:
    ends = [[h(STREAM.encode()), SIZE, root(leaves)]]
    fields = [1, label(), label(), SIZE, root(leaves), 0]
    item = [*fields, sign(HUB, ht("veen/sig", cbor(fields)))]
    result = {
        1: 1, 2: hub_id(), 3: ed25519_public(HUB), 4: PROFILE_ID, 5: START + 100,
        6: ht("veen/log-root", cbor(ends)), 7: ends, 8: [STREAM], 9: [item], 10: bytes(64),
    }  # fmt: skip
    return {**result, 10: sign(HUB, ht("veen/recorder-checkpoint", cbor(result)))}


def event(seq: int, leaves: list[bytes]) -> list[Any]:
    """The first is told and disclosed, the second told, the third neither."""
    detail = body(seq)
    metadata = [
        detail["subject_id"], detail["principal_id"], detail["event_type"], detail["event_time"],
        START + seq, detail["origin"],
    ]  # fmt: skip
    result = [
        cbor(message(seq)),
        metadata if seq < LAST else None,
        cbor(receipt(seq, leaves)),
    ]
    return [*result, body_key(seq)] if seq == FIRST else result


def bundle() -> tuple[bytes, bytes, dict[int, Any]]:
    """bundle_id, bundle and checkpoint. Of seven leaves 3 to 5 are carried; 1 and 2 are one peak
    before them, leaf 6 and leaf 7 the subtrees after them.
    """
    leaves = [leaf(message(seq)) for seq in range(1, SIZE + 1)]
    signed = checkpoint(leaves)
    header = {
        1: 1, 3: hub_id(), 4: PROFILE_ID, 5: h(STREAM.encode()), 6: STREAM, 7: FIRST, 8: LAST,
        9: START + FIRST, 10: START + LAST, 11: signed,
    }  # fmt: skip
    events = [event(seq, leaves) for seq in range(FIRST, LAST + 1)]
    proof = {1: 1, 2: FIRST, 3: LAST, 4: SIZE, 5: [tree(leaves[:2])], 6: leaves[5:]}
    identifier = ht("veen/agb0-bundle", cbor(header) + cbor(events) + cbor(proof))
    named = {1: 1, 2: identifier, **{key: header[key] for key in range(3, 12)}}
    return identifier, b"\x83" + cbor(named) + cbor(events) + cbor(proof), signed


def carrier() -> dict[str, bytes]:
    """The files of the bag, with all in one volume."""
    identifier, raw, signed = bundle()
    cut = cbor([1 << 40, 500, 1, 0])
    set_id = ht("veen/agb0-set", h(raw) + cut)
    volume = struct.pack(">8s32sHHHQ32s", b"AGB0VOL\x01", set_id, 0, 1, 0, len(raw), h(raw)) + raw
    entry = [1, bytes(32), identifier, hub_id(), STREAM, FIRST, LAST, h(cbor(signed)), START + 100]
    body = cbor({
        1: 1, 2: "veen 0.0.1", 3: set_id, 4: 1, 5: 0, 6: 1, 7: len(raw),
        8: [[1, len(volume), h(volume)]], 11: {1: 1, 2: h(b"vector bridge"), 3: [entry]},
    })  # fmt: skip
    files = {
        "LABEL.txt": LABEL.format(
            set=set_id.hex()[:16],
            hub=hub_id().hex()[:16],
            bundle=identifier.hex()[:16],
            words=proquints(identifier[:12]),
        ).encode(),
        "bag-info.txt": (
            f"Payload-Oxum: {len(volume)}.1\nSource-Organization: veen hub {hub_id().hex()}\n"
            f"External-Identifier: {identifier.hex()}\nBagging-Date: 2023-11-14\n"
            f"Bag-Group-Identifier: {set_id.hex()}\nBag-Count: 1 of 1\n"
        ).encode(),
        "bagit.txt": b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "carrier.cbor": body,
        "manifest-sha256.txt": f"{h(volume).hex()}  data/v001.agv\n".encode(),
    }
    tags = "".join(f"{h(content).hex()}  {name}\n" for name, content in files.items()).encode()
    signature = sign(EXPORTER, ht("veen/agb0-carrier", tags))
    return {
        **files,
        "tagmanifest-sha256.txt": tags,
        "carrier.sig": cbor({1: 1, 2: ed25519_public(EXPORTER), 3: signature}),
        "data/v001.agv": volume,
    }


def proquints(raw: bytes) -> str:
    """Sixteen bits a word, by draft-rayner-proquint; with spaces for people."""
    result = []
    for (bits,) in struct.iter_unpack(">H", raw):
        letters = ["bdfghjklmnprstvz"[bits >> shift & 15] for shift in (12, 6, 0)]
        vowels = ["aiou"[bits >> shift & 3] for shift in (10, 4)]
        result.append(letters[0] + vowels[0] + letters[1] + vowels[1] + letters[2])
    return " ".join(result)


LABEL = """Carrier of the VEEN air-gap bridge (AGB0)

Medium      1 of 1
Volumes     v001.agv of 1 data and 0 parity
Set         {set}
Hub         {hub}
Stream      export/vector
Events      3 to 5 (3)
Bundle      {bundle}
Words       {words}

Check with stock tools, in this directory:
    sha256sum -c manifest-sha256.txt
    sha256sum -c tagmanifest-sha256.txt
Without carrier.sig the carrier was not finished and must not be used.
"""


def generate() -> str:
    identifier, raw, _ = bundle()
    hub = ed25519_public(HUB)
    identity = cbor({1: 1, 2: hub_id(), 3: [{1: h(hub), 2: hub, 3: START}], 4: "none"})
    document = {
        "source": "Made by make_bundle.py from the description of the format",
        "hub_identity": identity,
        "hub_identity_sig": sign(HUB, ht("veen/hub-identity", identity)),
        "exporter_seed": EXPORTER,
        "bridge_id": h(b"vector bridge"),
        "bundle_id": identifier,
        "bundle": raw,
        "carrier": carrier(),
    }
    return json.dumps(document, indent=1, default=bytes.hex) + "\n"


if __name__ == "__main__":
    write_vectors(TARGET, generate())
