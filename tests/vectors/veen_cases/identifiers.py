"""Hashes and identifiers: H, Ht, schema ids, labels, hubs, streams, profiles, leaves."""

from __future__ import annotations

from typing import Any

from veen_cases.formulas import cbor, h, ht, u64be
from veen_cases.known import Case, known, own, reference

COUNT_32 = bytes(range(32))


def digests() -> list[Case]:
    tagged = known(
        ht("veen/profile", b"hello world"),
        "01a569ebb69ddd4d66e648a0fbe6247a36b27f1d08e18d08ff7b3bac14869483",
    )
    plain = {
        b"test": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        b"chat.v1": "d07b66b7da9e1e2387fcaafa41c1bdee224d6078dc11eb4268ec488e69384542",
        b"attachment-cipher": "83b88936270f284e2ec89b785d239b03993699114bc641ce0c8460a8d2286197",
    }
    return [
        reference("Ht of a short text", tag="veen/profile", data=b"hello world", digest=tagged),
        own("Ht of nothing", tag="veen/att-root", data=b"", digest=ht("veen/att-root", b"")),
        *(
            reference(f"H of {text.decode()}", tag=None, data=text, digest=known(h(text), literal))
            for text, literal in plain.items()
        ),
    ]


SCHEMA_IDS = """
wallet.open.v1 f1b37e207e51e78a9f83b076ad5d14edf9b811a9805d2dc403e2082f9c924aea
veen/schema:paid.operation.v1 e7ca17e7da0f5539e02fb89a234c58e8808d84e832a97e7c70d95fa4376469a5
veen/schema:access.grant.v1 d069a2baa097837df1e6fc27f07a43ac9b9ed6717ac71f2dd72f977685d7c8c0
veen/schema:access.revoke.v1 c2e4253b2ed25212b0c4e6fb192083b6597562f8636502940f1e2e85cae5c380
veen/schema:delegated.execution.v1 69ceb5040a2b77e7d674c5d267f59c5c4ac6d5e4783ec1135b3babf921e38356
veen/schema:agreement.definition.v1 43677781ec866ae7ef696fb76027cb74f78a651ac75e04c7bc0a255c4568e85d
veen/schema:agreement.confirmation.v1 21b3cccd9b213437d20e570fe99a0c809a54822e3c0c1367f82a0b06308803d2
veen/schema:data.publication.v1 4a73c04facf15ce395992ac5ff5ed68f5a1ce4edb4e4913646780d3e7c01375b
veen/schema:state.checkpoint.v1 38d54b9a599a8b6fbd433b715fb23999bb37b12a0f1b62a8e7505e58cd462788
veen/schema:recovery.request.v1 69799ac3b7694cce78a089b50c6fc473937061e08b4e6c2eb857143bcbe7c6bf
veen/schema:recovery.approval.v1 b7c21bd0ea5c615f490cf369a26c4f7f7545dcf2692e04824626c26ae74c15f7
veen/schema:recovery.execution.v1 a8ac8216ad4037eb8f8d23b9df047ccd9e6370204939daf01ec28b4907bde2f3
veen/schema:query.audit.v1 9acfbdd772c4fae67434622bb786f071fd8f385f9435b00835b5c9f791f7e6ae
veen/schema:federation.mirror.v1 995000e25ee8ac0c3dce004c974f6fac3b0e23b916184fe4279a93568e123b9b
wallet.close.v1 5d1356a5493844febcda7efe7ef837fc220629b61dd99e7c6894940a57b61212
wallet.deposit.v1 ed055113927b800be6ce91f71a5fa939cfd55e0142e37bff205e12fadde2020e
wallet.withdraw.v1 9d29f9cf926c268be8fd5b5cbd0ddbb58d4433142f38674cd9f506decc6c125e
wallet.transfer.v1 5350cf85e6e0438ed34db22694c3f142903719135aed659f2401fcbaff983911
wallet.adjust.v1 df4af996179e4a2f9723f7dbdd8c62ff0a8831fc6e3865f550b8b25adfcf3ea0
wallet.limit.v1 61758374a8474b4154f301603c3519d7cbd8eb1f760aed05dddf57b6133c3979
wallet.freeze.v1 25914e04bfb5420b60c52a1fcd597501deafa771b8ce84aca081e3fd29051d36
wallet.unfreeze.v1 756d26e8117efc3327584092d73c34d441ea1a0ee8c53b0566abb00611027312
veen.pow.cookie.v1 c5d6fb7109e87396882d0d891f3eb6a82c31973913d8f889e233fcbbebd3dac7
id.external.v1 bea894a19e522bc318dcceb34ac9b134278df599ed87bfd452f7d9c2ed51b9e1
id.handlemap.v1 7454d511ff991578e29b354a41c8b9277c83a8fb692b4e7186ebe4b33b6e9c88
veen.revocation.v1 199270cccd72d7d8b6b6905c457a79aa2750e0c1631efd07e095466e5efa3999
veen.fed.authority.v1 90be86c2cbef28467387b4c22a6b1185de7a2f57028cb4f125ef01d41c632c29
veen.meta.schema.v1 7c5439faf099af62d354af265f5af72b800cfbdcecc61750460d641a1a8a8141
veen.label.class.v1 a5329b5c86c5aa57419443be2bd881d1a74d1fe4e5b441e2bfe40072c0b3d735
"""  # noqa: E501 - a row is a row


def schema_ids() -> list[Case]:
    rows = (line.split() for line in SCHEMA_IDS.split("\n") if line)
    return [reference(name, schema_id=known(h(name.encode()), literal)) for name, literal in rows]


def labels() -> list[Case]:
    def label(routing_key: bytes, stream_id: bytes, epoch: int) -> dict[str, Any]:
        value = ht("veen/label", routing_key + stream_id + u64be(epoch))
        return {"routing_key": routing_key, "stream_id": stream_id, "epoch": epoch, "label": value}

    short_key = label(b"routing-key", COUNT_32, 0x0123456789ABCDEF)
    vector_a = label(bytes(32), h(b"test"), 0)
    known(short_key["label"], "980504e8eba5bb36d29bacd6eff03edc8ff862d7c8c14656ba93917978a94c5f")
    known(vector_a["label"], "2ed0dbcbbecf93de9c71f533cdd7568b342e702471b00d4a40831697f85ff83a")
    routing_key = ht("veen/routing_key", ht("veen/hub-id", COUNT_32))
    return [
        reference("a routing key of 11 bytes", **short_key),
        own("vector A", **vector_a),
        own("the epoch of 1700000000 in minutes", **label(routing_key, h(b"test"), 28333333)),
        own("the epoch after it", **label(routing_key, h(b"test"), 28333334)),
    ]


def hubs() -> list[Case]:
    hub_id = known(
        ht("veen/hub-id", COUNT_32),
        "ea9b65369153415467c6685b12a1b568cd744c37b8ea56a52faa00a9180b5db9",
    )
    routing_key = ht("veen/routing_key", hub_id)
    return [reference("hub of 00..1f", hub_pk=COUNT_32, hub_id=hub_id, routing_key=routing_key)]


def streams() -> list[Case]:
    texts = ("test", "core/main", "record/app/http", "日本", "")
    own_id = bytes(range(0xA0, 0xC0))
    return [
        *(own(f"H of {text!r}", stream=text, stream_id=h(text.encode())) for text in texts),
        own("64 lower-case digits are the id", stream=own_id.hex(), stream_id=own_id),
        own("64 upper-case digits are the id", stream=own_id.hex().upper(), stream_id=own_id),
        own("62 digits are a name", stream="ab" * 31, stream_id=h(b"ab" * 31)),
    ]


def profile(epoch_sec: int, pad_block: int) -> dict[int, Any]:
    return {
        1: "xchacha20poly1305",
        2: "hkdf-sha256",
        3: "ed25519",
        4: "x25519",
        5: "X25519-HKDF-SHA256-CHACHA20POLY1305",
        6: epoch_sec,
        7: pad_block,
        8: "sha256",
    }


def profiles() -> list[Case]:
    known(
        cbor(profile(60, 256)),
        """a80171786368616368613230706f6c7931333035026b686b64662d736861323536036765643235353139
        04667832353531390578235832353531392d484b44462d5348413235362d4348414348413230504f4c59
        3133303506183c071901000866736861323536""",
    )
    ids = {
        (60, 256): "1db91032b4bf4cd8b9f56a782b299458e6f782d3a1276f04c50c7b02651038ca",
        (60, 0): "d0b01ec0b591c1678c64f2bd6cd9e7d8b3e56f6cd839cb66c0d099299a961281",
        (0, 0): "7b6d324dfa79bdc2928558b784ca937eae43f94534dbe8ad2693ae2033240be1",
    }
    return [
        (reference if pad_block else own)(
            f"epoch_sec {epoch_sec}, pad_block {pad_block}",
            epoch_sec=epoch_sec,
            pad_block=pad_block,
            cbor=cbor(profile(epoch_sec, pad_block)),
            profile_id=known(ht("veen/profile", cbor(profile(epoch_sec, pad_block))), literal),
        )
        for (epoch_sec, pad_block), literal in ids.items()
    ]


def leaves() -> list[Case]:
    fields: dict[str, bytes | int] = {
        "label": bytes(range(0x20, 0x40)),
        "profile_id": bytes(range(0x01, 0x21)),
        "ct_hash": bytes(range(0x60, 0x80)),
        "client_id": bytes(range(0x40, 0x60)),
        "client_seq": 42,
    }
    joined = b"".join(v if isinstance(v, bytes) else u64be(v) for v in fields.values())
    leaf = known(
        ht("veen/leaf", joined), "f7e721ff3dc68c0f251c28fe98cbbc09b9a1f5cda451adb13e068bff6e4b1df2"
    )
    return [reference("leaf of consecutive bytes", fields=fields, leaf_hash=leaf)]
