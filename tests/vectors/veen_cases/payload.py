"""Payload headers, attachment roots and capability tokens."""

from __future__ import annotations

from veen_cases.formulas import att_root, cbor, ed25519_public, ed25519_sign, h, ht
from veen_cases.known import Case, known, own, reference


def att_roots() -> list[Case]:
    first, second = b"cipher-1", b"cipher-2"
    two = known(
        att_root([h(first), h(second)]),
        "cd9e4c6ae0d14924ff9eb6808995f5c71744185619439697a6eb7b6779fecd4a",
    )
    value = known(
        att_root([h(first)]), "4f0a46964d138df7817ee8fc81f1c6c611223d4a7ac25a50680e07212de97e5d"
    )
    none = known(att_root([]), "d8502e2b7365f07d065ff0ef5d1237b733d31554ac4b5e7dd806b6e15552d311")
    five = [b"cipher-%d" % n for n in range(5)]
    return [
        reference("two attachments", sealed=[first, second], att_root=two),
        reference("one attachment is hashed too", sealed=[first], att_root=value),
        own("no attachment", sealed=[], att_root=none),
        own("five attachments", sealed=five, att_root=att_root([h(item) for item in five])),
    ]


def payload_headers() -> list[Case]:
    schema, parent = bytes(range(0x01, 0x21)), bytes(range(0x20, 0x40))
    full = {
        "schema": schema,
        "parent_id": parent,
        "att_root": att_root([h(b"cipher-1"), h(b"cipher-2")]),
        "cap_ref": bytes(range(0x40, 0x60)),
        "expires_at": 1700000000,
    }
    known(
        cbor(dict(enumerate(full.values(), 1))),
        """a50158200102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20025820202122
        232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f035820cd9e4c6ae0d14924ff9e
        b6808995f5c71744185619439697a6eb7b6779fecd4a045820404142434445464748494a4b4c4d4e4f50
        5152535455565758595a5b5c5d5e5f051a6553f100""",
    )
    some = {"schema": b"\x10" * 32, "att_root": b"\x11" * 32, "expires_at": 42}
    known(
        cbor({1: some["schema"], 3: some["att_root"], 5: 42}),
        """a30158201010101010101010101010101010101010101010101010101010101010101010035820111111
        111111111111111111111111111111111111111111111111111111111105182a""",
    )
    return [
        reference("every field", fields=full, cbor=cbor(dict(enumerate(full.values(), 1)))),
        reference(
            "absent fields are left out",
            fields=some,
            cbor=cbor({1: some["schema"], 3: some["att_root"], 5: 42}),
        ),
    ]


def capabilities() -> list[Case]:
    seed, subject = bytes(range(0x10, 0x30)), b"\x42" * 32
    stream = bytes(0xA5 ^ i for i in range(32))
    issuer = known(
        ed25519_public(seed), "7776e870b93354f2a0b24c23f2a36cc4e80e223218c1b97926fdd018396a2b9b"
    )
    grant = {1: 1, 2: issuer, 3: subject, 4: {1: [stream], 2: 600, 3: {1: 5, 2: 10}}}
    link = known(
        ht("veen/cap-link", cbor(grant) + bytes(64)),
        "b553344136c610b4baf70cf4ffab1dc2268356079f1bbbbe72fdf0bd24dac5d2",
    )
    first = known(
        ed25519_sign(seed, link),
        """8dcd42b61f0fc385982511d96ef065bce0d394548253a5567b99edc83a11859406895c02305b149fe98b
        54c072e61bed2d281af6310589d6eead5dedd3836e0a""",
    )
    item = known(
        cbor({**grant, 5: [first]}),
        """a501010258207776e870b93354f2a0b24c23f2a36cc4e80e223218c1b97926fdd018396a2b9b03582042
        4242424242424242424242424242424242424242424242424242424242424204a301815820a5a4a7a6a1
        a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba0219025803a20105020a058158408d
        cd42b61f0fc385982511d96ef065bce0d394548253a5567b99edc83a11859406895c02305b149fe98b54
        c072e61bed2d281af6310589d6eead5dedd3836e0a""",
    )
    known(ht("veen/cap", item), "cb038fbb1f7e6abe0e7bc50ba3ce3247cb627d34f1d731aaf4151a0b0f951189")
    next_link = ht("veen/cap-link", cbor(grant) + first)
    second = known(
        ed25519_sign(seed, next_link),
        """6efb88654bf615c68b8ba5a8dead932f7d00eb4d0e64768dd5d450fa76d345947df054093cea87c3b562
        81fd5c6acd5b857db466ef1b1434217df5b78da69603""",
    )
    two = cbor({**grant, 5: [first, second]})
    known(ht("veen/cap", two), "f719e18b7c888edbd0fb350ff4fedcd3c5ce81d869995f4f7d51a65bae524873")
    inputs = {
        "issuer_seed": seed, "issuer_pk": issuer, "subject_pk": subject, "stream_ids": [stream],
        "ttl": 600, "per_sec": 5, "burst": 10,
    }  # fmt: skip
    return [
        reference(
            "one link", **inputs, link_digests=[link], sig_chain=[first], cbor=item,
            auth_ref=ht("veen/cap", item),
        ),
        reference(
            "two links", **inputs, link_digests=[link, next_link], sig_chain=[first, second],
            cbor=two, auth_ref=ht("veen/cap", two),
        ),
    ]  # fmt: skip
