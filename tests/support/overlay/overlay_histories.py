"""Random histories of one label, with the meaning of each message beside its bytes.

Nothing here uses the library under test: bodies are written by the encoder below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any


def h(data: bytes) -> bytes:
    return sha256(data).digest()


def cbor(value: Any) -> bytes:
    """Deterministic CBOR; the keys of a map are written in the order of their encodings."""
    match value:
        case None:
            return b"\xf6"
        case bool():
            return b"\xf5" if value else b"\xf4"
        case int():
            return head(0, value) if value >= 0 else head(1, -1 - value)
        case bytes():
            return head(2, len(value)) + value
        case str():
            return head(3, len(value.encode())) + value.encode()
        case list():
            return head(4, len(value)) + b"".join(map(cbor, value))
        case dict():
            pairs = sorted((cbor(key), cbor(element)) for key, element in value.items())
            return head(5, len(value)) + b"".join(key + element for key, element in pairs)
    raise TypeError(type(value))


def head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    info = next(i for i in range(4) if argument < 1 << (8 << i))
    return bytes([major << 5 | 24 + info]) + argument.to_bytes(1 << info, "big")


LWW, ORSET, GCOUNTER = (h(name) for name in (b"crdt.lww.v1", b"crdt.orset.v1", b"crdt.gcnt.v1"))
PAID = h(b"veen/schema:paid.operation.v1")
RECORD = h(b"record.event.v1")
SCHEMAS = {
    "lww.map": LWW,
    "orset": ORSET,
    "counter.map": GCOUNTER,
    "wallet.ledger": PAID,
    "recorder.statistics": RECORD,
}
U64 = 2**64 - 1


@dataclass(frozen=True)
class OverlayMessage:
    """A message, and what it says; None when its body is not what its schema asks for."""

    stream_seq: int
    hub_ts: int
    client_id: bytes
    schema: bytes
    body: bytes
    says: dict[str, Any] | None


def named(word: str, number: int) -> bytes:
    return h(f"{word} {number}".encode())


def lww(chance: Random) -> dict[str, Any]:
    key = bytes([chance.randrange(6)]) * chance.randrange(3)
    return {"key": key, "ts": chance.choice([0, 1, 2, 3, U64]), "value": chance.randbytes(2)}


def orset(chance: Random) -> dict[str, Any]:
    if chance.random() < 0.35:
        return {"tomb": [named("add", chance.randrange(14)) for _ in range(chance.randrange(3))]}
    return {"id": named("add", chance.randrange(14)), "elem": bytes([chance.randrange(4)])}


def gcounter(chance: Random) -> dict[str, Any]:
    return {"shard": named("shard", chance.randrange(5)), "delta": chance.choice([0, 1, 7, U64])}


def paid(chance: Random) -> dict[str, Any]:
    body: dict[str, Any] = {
        "operation_type": "translate",
        "operation_args": chance.choice([None, -5, {"pages": [1, 2]}, b"raw"]),
        "payer_account": named("account", chance.randrange(4)),
        "payee_account": named("account", chance.randrange(4)),
        "amount": chance.choice([0, 1, 3, 10, 250, U64]),
    }
    more: dict[str, Any] = {
        "currency_code": chance.choice(["JPY", "credits", "\N{EURO SIGN}"]),
        "operation_reference": chance.randbytes(32),
        "parent_operation_id": None,
        "ttl_seconds": chance.choice([None, 60]),
        "metadata": chance.choice([None, {"note": -1}]),
    }
    return body | {key: value for key, value in more.items() if chance.random() < 0.5}


def record(chance: Random) -> dict[str, Any]:
    return {
        "subject_id": f"user:{chance.randrange(5)}",
        "principal_id": named("client", chance.randrange(3)),
        "event_type": chance.choice(["login", "logout", "\N{GREEK SMALL LETTER ALPHA}"]),
        "event_time": chance.randrange(10**9),
        "origin": chance.choice(["web", "batch"]),
        "payload": chance.choice([None, {"size": -3}, "x" * chance.randrange(40)]),
    }


def signed_record(
    chance: Random, says: dict[str, Any], client: bytes
) -> tuple[bytes, dict[str, Any] | None]:
    """The event of the client that signs it; one in ten speaks for another, or holds no JSON."""
    says = says | {"principal_id": client}
    lie = chance.random()
    if lie < 0.05:
        return cbor(says | {"principal_id": named("client", 99)}), None
    if lie < 0.1:
        return cbor(says | {"payload": b"bytes are no JSON"}), None
    return cbor(says), says


WRITERS = {LWW: lww, ORSET: orset, GCOUNTER: gcounter, PAID: paid, RECORD: record}


def broken(chance: Random, says: dict[str, Any]) -> bytes:
    """A body of the same schema that is not well formed."""
    raw = cbor(says)
    lacking = {key: says[key] for key in list(says)[1:]}
    return chance.choice(
        [raw + b"\x00", raw[:-1], b"", b"\xbf\xff", cbor(says | {"zzz": 1}), cbor([1]),
         cbor(lacking | {"more": 1}), b"\xff" + raw[1:]]
    )  # fmt: skip


def history(
    seed: int, size: int, chosen: bytes, public: Callable[[bytes], bytes] = lambda client: client
) -> list[OverlayMessage]:
    """Messages of the chosen schema for the most part, and some of everything else.

    ``public`` gives the key that a client is known by, where what is drawn is its private one.
    """
    chance = Random(seed)
    hub_ts, messages = 1_700_000_000, []
    for seq in range(1, size + 1):
        hub_ts += chance.choice([0, 1, 40_000])
        schema = chosen if chance.random() < 0.85 else chance.choice(list(WRITERS))
        says: dict[str, Any] | None = WRITERS[schema](chance)
        body = cbor(says)
        if chance.random() < 0.08:
            body, says = broken(chance, says or {}), None
        elif chance.random() < 0.04:
            schema, body, says = b"", b"", None
        client = named("client", chance.randrange(3))
        if says is not None and schema == RECORD:
            body, says = signed_record(chance, says, public(client))
        messages.append(OverlayMessage(seq, hub_ts, client, schema, body, says))
    return messages
