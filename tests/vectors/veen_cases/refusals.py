"""Bytes that must not be taken, and a few near them that must."""

from __future__ import annotations

from typing import Any

from veen_cases.formulas import cbor, ed25519_public, ed25519_sign, ht
from veen_cases.identifiers import profile
from veen_cases.known import Case, known, own, reference

A, B, SIG = b"\x0a" * 32, b"\x0b" * 32, b"\x0c" * 64
ENVELOPE = b"\xaa" * 32 + b"\x00\x00\x00\x01\x00\x00\x00\x01\x0a\x0b"


def ciphertext_frames() -> list[Case]:
    padded = ENVELOPE + bytes(3)
    block = ENVELOPE + bytes(2)
    odd = ENVELOPE + bytes(1)
    ones = ENVELOPE + b"\x00\x01\x00"
    return [
        reference("zero padding", raw=padded, pad_block=0, accepted=True),
        reference("padding that is not zero", raw=ones, pad_block=0, accepted=False),
        reference("lengths beyond the end", raw=b"\xaa" * 42, pad_block=0, accepted=False),
        reference("43 bytes are no multiple of 4", raw=odd, pad_block=4, accepted=False),
        own("padding to the block", raw=block, pad_block=4, accepted=True),
        own("shorter than its own frame", raw=b"\xaa" * 39, pad_block=0, accepted=False),
    ]


def malformed() -> list[Case]:
    return [*_messages(), *_checkpoints(), *_headers(), *_profiles(), *_proofs(), *_capabilities()]


def _bad(object_name: str, name: str, raw: bytes) -> Case:
    return own(f"{object_name}: {name}", object=object_name, raw=raw)


def _messages() -> list[Case]:
    def msg(**changes: Any) -> list[Any]:
        fields = {
            "ver": 1, "profile_id": A, "label": A, "client_id": A, "client_seq": 1, "prev_ack": 0,
            "auth_ref": None, "ct_hash": B, "ciphertext": b"\x00", "sig": SIG,
        }  # fmt: skip
        return list((fields | changes).values())

    good = cbor(msg())
    seq_at = good.index(A + b"\x01\x00\xf6") + 32
    return [
        _bad("Msg", "label of 31 bytes (58 1f)", cbor(msg(label=A[:31]))),
        _bad("Msg", "label of 33 bytes (58 21)", cbor(msg(label=A + b"\x0a"))),
        _bad("Msg", "trailing byte", good + b"\x00"),
        _bad("Msg", "overlong array head", b"\x98\x0a" + good[1:]),
        _bad("Msg", "indefinite array", b"\x9f" + good[1:] + b"\xff"),
        _bad("Msg", "overlong client_seq", good[:seq_at] + b"\x18" + good[seq_at:]),
        _bad("Msg", "version 2", cbor(msg(ver=2))),
        _bad("Msg", "nine elements", cbor(msg()[:-1])),
        _bad("Msg", "ct_hash is null", cbor(msg(ct_hash=None))),
        _bad("Msg", "a map", cbor(dict(enumerate(msg(), 1)))),
    ]


def _checkpoints() -> list[Case]:
    fill = [bytes([n]) * 32 for n in (0x11, 0x12, 0x13)]
    null_witness = known(
        cbor([1, fill[0], fill[1], 7, fill[2], 9, b"\x14" * 64, None]),
        """880158201111111111111111111111111111111111111111111111111111111111111111582012121212
        121212121212121212121212121212121212121212121212121212120758201313131313131313131313
        131313131313131313131313131313131313131313095840141414141414141414141414141414141414
        141414141414141414141414141414141414141414141414141414141414141414141414141414141414
        14141414f6""",
    )
    covered = [1, A, A, 7, B, 9]
    return [
        reference("Checkpoint: witnesses are null", object="Checkpoint", raw=null_witness),
        _bad("Checkpoint", "six elements", cbor(covered)),
        _bad("Checkpoint", "nine elements", cbor([*covered, SIG, [SIG], 1])),
        _bad("Checkpoint", "witness of 63 bytes", cbor([*covered, SIG, [SIG[:63]]])),
        _bad("Receipt", "six elements", cbor([1, A, 7, A, B, 9])),
        _bad("Receipt", "eight elements", cbor([1, A, 7, A, B, 9, SIG, SIG])),
    ]


def _headers() -> list[Case]:
    unknown_key = known(
        cbor({9: b"\x01" * 32}),
        """a10958200101010101010101010101010101010101010101010101010101010101010101""",
    )
    return [
        reference("PayloadHdr: key 9", object="PayloadHdr", raw=unknown_key),
        _bad("PayloadHdr", "key 9 after schema", cbor({1: A, 9: A})),
        _bad("PayloadHdr", "no schema", cbor({3: A})),
        _bad("PayloadHdr", "null parent_id", cbor({1: A, 2: None})),
        _bad("PayloadHdr", "text keys", cbor({"schema": A})),
        _bad("PayloadHdr", "keys out of order", cbor({5: 1, 1: A})),
        _bad("PayloadHdr", "schema twice", b"\xa2" + (b"\x01" + cbor(A)) * 2),
    ]


def _profiles() -> list[Case]:
    names = ("aead", "kdf", "sig", "dh", "hpke_suite", "epoch_sec", "pad_block", "mmr_hash")
    text_keys = dict(zip(names, profile(60, 0).values(), strict=True))
    return [
        _bad("Profile", "text keys", cbor(text_keys)),
        _bad("Profile", "another aead", cbor(profile(60, 0) | {1: "aes256gcm"})),
    ]


def _proofs() -> list[Case]:
    long = [{1: 1, 2: A}] * 65
    return [
        _bad("MmrProof", "direction 2", cbor({1: 1, 2: A, 3: [{1: 2, 2: B}], 4: []})),
        _bad("MmrProof", "path of 65 steps", cbor({1: 1, 2: A, 3: long, 4: []})),
        _bad("MmrProof", "no peaks_after", cbor({1: 1, 2: A, 3: []})),
        _bad(
            "MmrProof", "unknown key in a step", cbor({1: 1, 2: A, 3: [{1: 1, 2: B, 3: 0}], 4: []})
        ),
    ]


def _capabilities() -> list[Case]:
    def token(stream_ids: list[bytes], chain: list[bytes], **changes: Any) -> bytes:
        allow = {1: stream_ids, 2: 600} | changes.get("allow", {})
        result: bytes = cbor({1: changes.get("ver", 1), 2: A, 3: B, 4: allow, 5: chain})
        return result

    return [
        _bad("CapToken", "version 2", token([A], [SIG], ver=2)),
        _bad("CapToken", "nine links", token([A], [SIG] * 9)),
        _bad("CapToken", "no link", token([A], [])),
        _bad("CapToken", "no stream", token([], [SIG])),
        _bad("CapToken", "unsorted streams", token([B, A], [SIG])),
        _bad("CapToken", "a stream twice", token([A, A], [SIG])),
        _bad("CapToken", "null rate", token([A], [SIG], allow={3: None})),
        _bad("CapToken", "unknown key in allow", token([A], [SIG], allow={4: 1})),
    ]


def untrusted_capabilities() -> list[Case]:
    """Well-formed tokens of which one link does not hold, with the index of that link."""
    seed = bytes(range(0x10, 0x30))
    grant = {1: 1, 2: ed25519_public(seed), 3: B, 4: {1: [A], 2: 600}}
    first = ed25519_sign(seed, ht("veen/cap-link", cbor(grant) + bytes(64)))
    second = ed25519_sign(seed, ht("veen/cap-link", cbor(grant) + first))
    flipped = bytes([first[0] ^ 0xFF]) + first[1:]
    stranger = ed25519_sign(b"\x01" * 32, ht("veen/cap-link", cbor(grant) + bytes(64)))
    chains = {
        "byte 0 of link 0 flipped": (0, [flipped]),
        "links swapped": (0, [second, first]),
        "link 1 signs what link 0 signs": (1, [first, first]),
        "signed by another key": (0, [stranger]),
    }
    return [
        own(name, link=link, raw=cbor({**grant, 5: chain}))
        for name, (link, chain) in chains.items()
    ]
