"""Sealed payloads and a small log of them: every value from the keys to the chunk summary."""

from __future__ import annotations

from typing import Any

from veen_cases.formulas import (
    att_root,
    cbor,
    ed25519_public,
    ed25519_sign,
    h,
    hpke_sender,
    ht,
    mmr_root,
    peaks,
    u32be,
    u64be,
    x25519_public,
    xchacha,
)
from veen_cases.identifiers import profile
from veen_cases.known import Case, known, own, reference
from veen_cases.wire import CHECKPOINT_FIELDS, MSG_FIELDS, RECEIPT_FIELDS, signed

READER = bytes(range(0x60, 0x80))
CLIENT = b"\x42" * 32
HUB = b"\x77" * 32
WITNESS = b"\x78" * 32
HUB_PK = ed25519_public(HUB)
ROUTING_KEY = ht("veen/routing_key", ht("veen/hub-id", HUB_PK))
FIRST_TS = 1700000000


def nonces() -> list[Case]:
    label, client = b"\x02" * 32, b"\x03" * 32
    nonce = known(
        ht("veen/nonce", label + u64be(4) + client + u64be(9))[:24],
        "758f0554f4a06ff943668724a73dc72b515a33cb647d1e12",
    )
    fields = {"label": label, "prev_ack": 4, "client_id": client, "client_seq": 9}
    return [reference("body nonce", fields=fields, nonce=nonce)]


def attachment_seals() -> list[Case]:
    aad, key, plaintext = b"\xab" * 32, bytes(range(32)), b"an attachment"
    nonce = known(
        ht("veen/att-nonce", aad + u64be(3))[:24],
        "dcfebe469593e7686f86fd4accb33f2772fa6aebaa59ac8f",
    )
    return [
        reference(
            "attachment 3, the aad in place of msg_id",
            aad=aad, index=3, key=key, export_context=b"veen/att-k" + u64be(3), nonce=nonce,
            plaintext=plaintext, sealed=xchacha(key, nonce, b"", plaintext),
        )
    ]  # fmt: skip


def seal(place: Case, header: dict[int, Any], body: bytes, attachments: list[bytes]) -> Case:
    """Steps 1 to 12 of spec 4.2, each intermediate value kept."""
    ikm = h(b"ephemeral of message %d" % place["client_seq"])
    sender = hpke_sender(x25519_public(READER), ikm)
    counters = u64be(place["client_seq"]), u64be(place["prev_ack"])
    profile_id = ht("veen/profile", cbor(profile(place["epoch_sec"], place["pad_block"])))
    aad = ht(
        "veen/aad",
        profile_id + place["label"] + place["client_id"] + counters[0] + counters[1]
        + (place["auth_ref"] or bytes(32)),
    )  # fmt: skip
    nonce = ht("veen/nonce", place["label"] + counters[1] + place["client_id"] + counters[0])[:24]
    sealed = [
        _seal_attachment(sender, aad, i, attachment) for i, attachment in enumerate(attachments)
    ]
    if sealed:
        header = {1: header[1], 3: att_root([h(item) for item in sealed])} | header
        header = dict(sorted(header.items()))
    hpke_ct = sender.seal_first(aad, cbor(header))
    k_body = sender.export(b"veen/body-k", 32)
    body_ct = xchacha(k_body, nonce, aad, body)
    frame = sender.enc + u32be(len(hpke_ct)) + u32be(len(body_ct)) + hpke_ct + body_ct
    ciphertext = frame + bytes(-len(frame) % (place["pad_block"] or 1))
    return {
        "reader_private": READER, "reader_public": x25519_public(READER), "ephemeral": ikm,
        "place": place, "profile_id": profile_id, "aad": aad, "nonce": nonce,
        "payload_hdr": cbor(header), "body": body, "attachments": attachments,
        "sealed_attachments": sealed, "enc": sender.enc, "hpke_ct_hdr": hpke_ct, "k_body": k_body,
        "aead_ct_body": body_ct, "ciphertext": ciphertext, "ct_hash": h(ciphertext),
    }  # fmt: skip


def _seal_attachment(sender: Any, aad: bytes, index: int, plaintext: bytes) -> bytes:
    key = sender.export(b"veen/att-k" + u64be(index), 32)
    result: bytes = xchacha(key, ht("veen/att-nonce", aad + u64be(index))[:24], b"", plaintext)
    return result


def submitted(sealed: Case) -> Case:
    """The signed MSG around a sealed payload, and its leaf."""
    place = sealed["place"]
    covered = [
        1, sealed["profile_id"], place["label"], place["client_id"], place["client_seq"],
        place["prev_ack"], place["auth_ref"], sealed["ct_hash"], sealed["ciphertext"],
    ]  # fmt: skip
    leaf = ht(
        "veen/leaf",
        place["label"] + sealed["profile_id"] + sealed["ct_hash"] + place["client_id"]
        + u64be(place["client_seq"]),
    )  # fmt: skip
    msg = signed(MSG_FIELDS, covered, CLIENT)["cbor"]
    return {**sealed, "client_seed": CLIENT, "msg": msg, "leaf_hash": leaf}


def place_at(stream: bytes, client_seq: int, **changes: Any) -> Case:
    label = ht("veen/label", changes.pop("routing_key", ROUTING_KEY) + stream + u64be(0))
    return {
        "epoch_sec": 0, "pad_block": 0, "label": label, "client_id": ed25519_public(CLIENT),
        "client_seq": client_seq, "prev_ack": client_seq - 1, "auth_ref": None, **changes,
    }  # fmt: skip


def sealed_messages() -> list[Case]:
    schema = h(b"chat.v1")
    vector_a = seal(place_at(h(b"test"), 1, routing_key=bytes(32)), {1: schema}, b"", [])
    padded_place = place_at(h(b"files"), 7, pad_block=256, prev_ack=12, auth_ref=b"\xca" * 32)
    header = {1: schema, 2: b"\x0a" * 32, 4: b"\xca" * 32, 5: 1800000000}
    padded = seal(padded_place, header, b"two files", [b"first file", b"second file" * 40])
    return [
        own("vector A: an empty body", **submitted(vector_a)),
        own("pad_block 256 and two attachments", **submitted(padded)),
    ]


def log() -> Case:
    """Three messages of one label as they lie on disk, and what is signed over them."""
    entries: list[Case] = []
    for seq, body in enumerate((b"one", b"two", b"three"), 1):
        sealed = seal(place_at(h(b"record/app/http"), seq), {1: h(b"chat.v1")}, body, [])
        entries.append(_entry(submitted(sealed), [entry["leaf_hash"] for entry in entries]))
    label = entries[0]["place"]["label"]
    leaves = [entry["leaf_hash"] for entry in entries]
    size, root = len(entries), mmr_root(peaks(leaves))
    checkpoint = signed(CHECKPOINT_FIELDS, [1, label, label, size, root, 0], HUB)
    hashes = mmr_root(peaks([entry["entry_hash"] for entry in entries]))
    total = sum(len(entry["framed"]) for entry in entries)
    return {
        "hub_seed": HUB, "hub_pk": HUB_PK, "stream": "record/app/http", "label": label,
        "entries": entries, "entry_hashes_root": hashes, "total_bytes": total,
        "chunk_summary": cbor([label, 1, size, root, size, total, hashes]),
        "peaks": peaks(leaves), "peak_snapshot": cbor([label, size, peaks(leaves)]),
        "checkpoint": checkpoint["cbor"], "witness_seed": WITNESS,
        "witness_sig": ed25519_sign(WITNESS, checkpoint["digest"]),
    }  # fmt: skip


def _entry(message: Case, leaves_before: list[bytes]) -> Case:
    leaf, seq = message["leaf_hash"], len(leaves_before) + 1
    label = message["place"]["label"]
    root = mmr_root(peaks([*leaves_before, leaf]))
    covered = [1, label, seq, leaf, root, FIRST_TS + seq]
    receipt = signed(RECEIPT_FIELDS, covered, HUB)["cbor"]
    entry_hash = h(b"veen/entry" + message["msg"] + receipt)
    header = (
        b"\x01\x00" + label + u64be(seq) + u32be(len(message["msg"])) + u32be(len(receipt))
        + entry_hash
    )  # fmt: skip
    return {
        **own(f"entry {seq}"), **message, "stream_seq": seq, "hub_ts": FIRST_TS + seq,
        "mmr_root": root, "receipt": receipt, "entry_hash": entry_hash,
        "framed": header + message["msg"] + receipt,
    }  # fmt: skip
