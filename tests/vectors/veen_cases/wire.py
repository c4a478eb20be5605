"""MSG, RECEIPT and CHECKPOINT: fields, bytes, digests and signatures."""

from __future__ import annotations

from typing import Any

from veen_cases.formulas import cbor, ed25519_public, ed25519_sign, ht
from veen_cases.known import Case, known, own, reference

MSG_FIELDS = (
    "ver", "profile_id", "label", "client_id", "client_seq", "prev_ack", "auth_ref", "ct_hash",
    "ciphertext", "sig",
)  # fmt: skip
RECEIPT_FIELDS = ("ver", "label", "stream_seq", "leaf_hash", "mmr_root", "hub_ts", "hub_sig")
CHECKPOINT_FIELDS = (
    "ver", "label_prev", "label_curr", "upto_seq", "mmr_root", "epoch", "hub_sig", "witness_sigs",
)  # fmt: skip


def signed(names: tuple[str, ...], covered: list[Any], seed: bytes) -> Case:
    """A wire array signed by ``seed``, its fields beside its bytes."""
    digest = ht("veen/sig", cbor(covered))
    whole = [*covered, ed25519_sign(seed, digest)]
    fields = dict(zip(names, whole, strict=False))
    return {"fields": fields, "digest": digest, "seed": seed, "cbor": cbor(whole)}


def bare(names: tuple[str, ...], covered: list[Any], *rest: Any) -> Case:
    """A wire array with something else in the place of its signature."""
    whole = [*covered, *rest]
    fields = dict(zip(names, whole, strict=False))
    return {
        "fields": fields,
        "digest": ht("veen/sig", cbor(covered)),
        "seed": None,
        "cbor": cbor(whole),
    }


def _fills(*fills: int) -> list[bytes]:
    return [bytes([fill]) * 32 for fill in fills]


def messages() -> list[Case]:
    with_ref = [1, *_fills(1, 2, 3), 9, 8, *_fills(4, 5), b"\xaa\xbb\xcc"]
    known(
        cbor(with_ref),
        """890158200101010101010101010101010101010101010101010101010101010101010101582002020202
        020202020202020202020202020202020202020202020202020202025820030303030303030303030303
        030303030303030303030303030303030303030309085820040404040404040404040404040404040404
        040404040404040404040404040458200505050505050505050505050505050505050505050505050505
        05050505050543aabbcc""",
    )
    unsigned = bare(MSG_FIELDS, with_ref, bytes(64))
    known(unsigned["digest"], "1addd063327c6a75599464fdb152b0f7c8f2d93a5a54c3689c8dfca01e83376a")
    no_ref = [1, *_fills(0x20, 0x21, 0x22), 2, 1, None, *_fills(0x23), b"\xaa\xbb"]
    absent = bare(MSG_FIELDS, no_ref, b"\x24" * 64)
    known(
        absent["cbor"],
        """8a0158202020202020202020202020202020202020202020202020202020202020202020582021212121
        212121212121212121212121212121212121212121212121212121215820222222222222222222222222
        22222222222222222222222222222222222222220201f658202323232323232323232323232323232323
        23232323232323232323232323232342aabb584024242424242424242424242424242424242424242424
        242424242424242424242424242424242424242424242424242424242424242424242424242424242424""",
    )
    client = known(
        ed25519_public(b"\x42" * 32),
        "2152f8d19b791d24453242e15f2eab6cb7cffa7b6a5ed30097960e069881db12",
    )
    covered = [1, b"\x01" * 32, b"\x02" * 32, client, 5, 3, None, b"\xaa" * 32, b"\x10\x20"]
    by_client = signed(MSG_FIELDS, covered, b"\x42" * 32)
    known(by_client["digest"], "7a9bae0c9f4cbf917548a2b1225611609ff671235bfe6b5283f9e36dc8b55b69")
    known(
        by_client["fields"]["sig"],
        """2f052e79df20e337daaf8f09f40f7a543302a8a37b893137b1eb18c7be644866716a14128a81e9a86bf6
        d07c854706768c446d6e877658460903f3f961bc320d""",
    )
    known(
        by_client["cbor"],
        """8a0158200101010101010101010101010101010101010101010101010101010101010101582002020202
        0202020202020202020202020202020202020202020202020202020258202152f8d19b791d24453242e1
        5f2eab6cb7cffa7b6a5ed30097960e069881db120503f65820aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa42102058402f052e79df20e337daaf8f09f40f7a543302a8a37b89
        3137b1eb18c7be644866716a14128a81e9a86bf6d07c854706768c446d6e877658460903f3f961bc320d""",
    )
    return [
        reference("with auth_ref", **unsigned),
        reference("auth_ref absent is null", **absent),
        reference("signed by seed 42", **by_client),
    ]


def receipts() -> list[Case]:
    digest_only = bare(
        RECEIPT_FIELDS, [1, b"\x21" * 32, 5, b"\x22" * 32, b"\x23" * 32, 1700000999], bytes(64)
    )
    known(digest_only["digest"], "e32a6672b7dd30b257c43fb1b1218c2772cb701fde392863574c658ed8789d8d")
    unsigned = bare(
        RECEIPT_FIELDS, [1, b"\x41" * 32, 7, b"\x42" * 32, b"\x43" * 32, 1700000123], b"\x44" * 64
    )
    known(
        unsigned["cbor"],
        """870158204141414141414141414141414141414141414141414141414141414141414141075820424242
        424242424242424242424242424242424242424242424242424242424258204343434343434343434343
        4343434343434343434343434343434343434343431a6553f17b58404444444444444444444444444444
        444444444444444444444444444444444444444444444444444444444444444444444444444444444444
        4444444444444444""",
    )
    known(
        ed25519_public(b"\x77" * 32),
        "c853ad0f0cd2b619aea92ceec4fd56a24d6499d584ce79257e45cfd8139b60a7",
    )
    covered = [1, b"\x11" * 32, 12, b"\x22" * 32, b"\x33" * 32, 1700000000]
    by_hub = signed(RECEIPT_FIELDS, covered, b"\x77" * 32)
    known(by_hub["digest"], "1d16fee216edb2236ccfedf99171e74cc8c7ea94beb62cf8cc2910c9983d2b7a")
    known(
        by_hub["fields"]["hub_sig"],
        """30733db3c142baf3b3e532a6b0708b1767fcea4ceec00a8347c114e47b8349ca27c0b0d4b498dbeb1d36
        9c68f8d4b897e6ee436fbe9e2fcbf689eed77028c409""",
    )
    known(
        by_hub["cbor"],
        """8701582011111111111111111111111111111111111111111111111111111111111111110c5820222222
        222222222222222222222222222222222222222222222222222222222258203333333333333333333333
        3333333333333333333333333333333333333333331a6553f100584030733db3c142baf3b3e532a6b070
        8b1767fcea4ceec00a8347c114e47b8349ca27c0b0d4b498dbeb1d369c68f8d4b897e6ee436fbe9e2fcb
        f689eed77028c409""",
    )
    return [
        reference("signing digest", **digest_only),
        reference("a filled signature", **unsigned),
        reference("signed by seed 77", **by_hub),
    ]


def checkpoints() -> list[Case]:
    digest_only = bare(
        CHECKPOINT_FIELDS, [1, b"\x31" * 32, b"\x32" * 32, 42, b"\x33" * 32, 77], bytes(64)
    )
    known(digest_only["digest"], "a618cd5061dcada1651c69a9333689ffdadfb3ed85ee6b36be0fad34c3b0108d")
    eight = bare(
        CHECKPOINT_FIELDS,
        [1, b"\x61" * 32, b"\x62" * 32, 9, b"\x63" * 32, 21],
        b"\x64" * 64,
        [b"\x65" * 64],
    )
    known(
        eight["cbor"],
        """880158206161616161616161616161616161616161616161616161616161616161616161582062626262
        626262626262626262626262626262626262626262626262626262620958206363636363636363636363
        636363636363636363636363636363636363636363155840646464646464646464646464646464646464
        646464646464646464646464646464646464646464646464646464646464646464646464646464646464
        646464648158406565656565656565656565656565656565656565656565656565656565656565656565
        6565656565656565656565656565656565656565656565656565656565""",
    )
    seven = bare(
        CHECKPOINT_FIELDS, [1, b"\x51" * 32, b"\x52" * 32, 5, b"\x53" * 32, 12], b"\x54" * 64
    )
    known(
        seven["cbor"],
        """870158205151515151515151515151515151515151515151515151515151515151515151582052525252
        525252525252525252525252525252525252525252525252525252520558205353535353535353535353
        5353535353535353535353535353535353535353530c5840545454545454545454545454545454545454
        545454545454545454545454545454545454545454545454545454545454545454545454545454545454
        54545454""",
    )
    covered = [1, b"\x41" * 32, b"\x42" * 32, 10, b"\x43" * 32, 1]
    known(
        cbor(covered),
        """860158204141414141414141414141414141414141414141414141414141414141414141582042424242
        424242424242424242424242424242424242424242424242424242420a58204343434343434343434343
        43434343434343434343434343434343434343434301""",
    )
    by_hub = signed(CHECKPOINT_FIELDS, covered, b"\x77" * 32)
    witness = ed25519_sign(b"\x78" * 32, by_hub["digest"])
    both = {**by_hub["fields"], "witness_sigs": [witness]}
    witnessed = {
        **by_hub,
        "fields": both,
        "cbor": cbor(list(both.values())),
        "witness_seed": b"\x78" * 32,
    }
    return [
        reference("signing digest", **digest_only),
        reference("eight elements with a witness", **eight),
        reference("seven elements without", **seven),
        own("signed by seed 77", **by_hub),
        own("witnessed by seed 78, who signs the same digest", **witnessed),
    ]
