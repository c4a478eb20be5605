"""Fuzz steps: mutated bytes for every decoder (spec 3.1) and for a hub (spec 8.1, 10.6), by TS0."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from cli.selftest.probe import Reply, submit_request
from cli.selftest.samples import TYPES, SelftestStep, Unexpected, expect, sample
from cli.selftest.verdict import verdict
from cli.selftest.world import SampleWriter, World
from hub.api.openapi import ROUTES, ApiRoute
from veen.checkpoint import Checkpoint
from veen.errors import Code, Failure, Malformed
from veen.msg import Msg
from veen.proofs import MmrProof
from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.api import BatchRequest, BatchResponse
from veen.wire.objects import WireObject

_HEADS: Final = bytes(
    (0x00, 0x17, 0x18, 0x1B, 0x1F, 0x20, 0x3B, 0x40, 0x5B, 0x5F, 0x60, 0x7B, 0x7F, 0x80, 0x9B, 0x9F,
     0xA0, 0xBB, 0xBF, 0xC0, 0xD9, 0xF4, 0xF6, 0xF7, 0xF9, 0xFB, 0xFF)
)  # fmt: skip
"""First bytes of items, among them those that announce the most and those that are never right."""
_DECODER_RUNS: Final = 1_000
_NAMED: Final = (Msg, Receipt, Checkpoint, MmrProof)
_HUB_RUNS: Final = 200
_BATCH: Final = 25
_LARGEST: Final = 16
_JSON: Final = "application/json"


def broken(chance: random.Random, raw: bytes) -> bytes:
    """A mutation of ``raw``."""
    while True:
        mutated = chance.choice(_WAYS)(chance, raw)
        if mutated != raw:
            return mutated


def _cut(chance: random.Random, raw: bytes) -> bytes:
    return raw[: chance.randrange(len(raw))]


def _flip(chance: random.Random, raw: bytes) -> bytes:
    mutated = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        mutated[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    return bytes(mutated)


def _head(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw))
    return raw[:at] + bytes([chance.choice(_HEADS)]) + raw[at + 1 :]


def _insert(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + chance.randbytes(chance.randint(1, 9)) + raw[at:]


def _drop(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw))
    return raw[:at] + raw[at + chance.randint(1, 9) :]


def _repeat(chance: random.Random, raw: bytes) -> bytes:
    start = chance.randrange(len(raw))
    end = chance.randint(start, len(raw))
    return raw[:end] + raw[start:]


def _noise(chance: random.Random, raw: bytes) -> bytes:
    return chance.randbytes(chance.randrange(len(raw) + 1))


def _nest(chance: random.Random, raw: bytes) -> bytes:
    """Arrays nested deeper than any object."""
    at = chance.randrange(len(raw))
    return raw[:at] + b"\x81" * chance.choice((10, 1_000, 20_000)) + raw[at:]


_WAYS: Final = (_cut, _cut, _flip, _flip, _head, _head, _insert, _drop, _repeat, _noise, _nest)


def decoding(types: Sequence[type[WireObject]]) -> Callable[[World], None]:
    def step(world: World) -> None:
        for number in world.cases(_DECODER_RUNS):
            cls = types[number % len(types)]
            raw = broken(world.random, sample(world.random, cls).encode())
            _try(cls, raw)

    return step


def _try(cls: type[WireObject], raw: bytes) -> None:
    """Expect that the bytes are refused, or decode to another object with these bytes."""
    try:
        decoded = cls.decode(raw)
    except Malformed:
        return
    except Exception as error:
        raise Unexpected(
            f"expected {cls.__name__} to be refused as Malformed, got "
            f"{type(error).__name__} for {raw[:200].hex()}"
        ) from error
    expect(f"the only encoding of a {cls.__name__}", cbor.dump(decoded.plain()), raw)


DECODER_STEPS: Final = (
    SelftestStep("decode-msg", decoding([Msg])),
    SelftestStep("decode-receipt", decoding([Receipt])),
    SelftestStep("decode-checkpoint", decoding([Checkpoint])),
    SelftestStep("decode-mmr-proof", decoding([MmrProof])),
    SelftestStep("decode-envelopes", decoding([item for item in TYPES if item not in _NAMED])),
)


def messages(world: World) -> None:
    """Each malformed message is refused at the right stage."""
    writer = world.writer()
    for number in world.cases(_HUB_RUNS):
        raw = broken(world.random, writer.msg(world.random.randbytes(8)).encode())
        _judge(world.probe.post("/v1/submit", submit_request(raw)), raw)
        _live_on(writer, number)
    writer.accepted()


def signed_messages(world: World) -> None:
    """Malformed messages with a valid signature are refused as well."""
    writer = world.writer()
    for number in world.cases(_HUB_RUNS):
        wrong = writer.around(broken(world.random, writer.msg(b"").ciphertext)[:60_000])
        raw = writer.msg(label=world.random.randbytes(32)) if number % 3 == 0 else wrong
        if number % 3 == 1:
            raw = writer.msg(auth_ref=world.random.randbytes(32))
        reply = world.probe.submit(raw.encode())
        failure = verdict(raw.encode())
        if failure is not None:
            expect_failure(reply, failure, raw.encode())
        elif number % 3 == 0:
            reply.refused_with(Failure.AUTH_REF)
        elif number % 3 == 1:
            reply.refused_with(Failure.CAP_MISSING)
        else:
            writer.client_seq, writer.prev_ack = writer.client_seq + 1, reply.receipt().stream_seq
        _live_on(writer, number)
    writer.accepted()


def batches(world: World) -> None:
    """Each malformed message of a batch fails separately; the valid one is accepted."""
    writer = world.writer()
    for number in world.cases(_HUB_RUNS // 4):
        good = writer.msg().encode()
        wrong = [_well_formed(world, good) for _ in range(world.random.randrange(_LARGEST))]
        place = world.random.randint(0, len(wrong))
        batch = BatchRequest(msgs=(*wrong[:place], good, *wrong[place:]))
        reply = world.probe.post("/v1/submit_batch", batch.encode())
        expect("status of the batch", reply.status, 200)
        results = BatchResponse.decode(reply.body).results
        taken = [index for index, result in enumerate(results) if result.receipt is not None]
        expect("which of the batch were taken", taken, [place])
        writer.client_seq, writer.prev_ack = writer.client_seq + 1, writer.prev_ack + 1
        _live_on(writer, number)
    writer.accepted()


def _well_formed(world: World, raw: bytes) -> bytes:
    """A mutation that is still one CBOR item, so that the batch around it is valid."""
    while True:
        mutated = broken(world.random, raw)
        try:
            if cbor.skip(mutated, 0) == len(mutated) and mutated != b"\xf6":
                return mutated
        except Malformed:
            continue


def requests(world: World) -> None:
    """Malformed requests to every route, in CBOR and JSON."""
    writer = world.writer()
    writer.accepted()
    routes = [item for item in ROUTES if item.request is not None]
    for number in world.cases(_HUB_RUNS):
        route = routes[number % len(routes)]
        body, media = _broken_request(world, route)
        _expect_answer(route, world.probe.post(route.path, body, media=media), body)
        _live_on(writer, number)
    writer.accepted()


def _broken_request(world: World, route: ApiRoute) -> tuple[bytes, str]:
    made = sample(world.random, route.request)
    if world.random.random() < 0.3:
        return broken(world.random, json.dumps(made.to_json()).encode()), _JSON
    media = world.random.choice(["application/cbor"] * 9 + ["text/plain"])
    return broken(world.random, made.encode()), media


def queries(world: World) -> None:
    """Malformed queries to every GET route."""
    writer = world.writer()
    routes = [item for item in ROUTES if item.request is None and item.query is not None]
    for number in world.cases(_HUB_RUNS // 4):
        route = routes[number % len(routes)]
        text = world.random.choice(["label=", "auth_ref=", "label=zz&", "from_seq=-1&", "x=1&"])
        filling = world.random.randbytes(world.random.choice((0, 3, 31, 32, 33))).hex()
        reply = world.probe.get(f"{route.path}?{text}{filling}")
        _expect_answer(route, reply, f"{text}{filling}".encode())
        _live_on(writer, number)
    writer.accepted()


def _expect_answer(route: ApiRoute, reply: Reply, body: bytes) -> None:
    """Expect a valid response or a valid error envelope, never an internal error."""
    if reply.status == 200:
        if route.response is not None:
            route.response.decode(reply.body)
        return
    envelope = reply.refusal()
    if envelope.code == Code.UNAVAILABLE.value:
        raise Unexpected(f"{route.path}: expected a refusal, got {envelope.code} for {_hex(body)}")


def _judge(reply: Reply, raw: bytes) -> None:
    failure = verdict(raw)
    if failure is None:
        raise Unexpected(f"a broken message that is none: {_hex(raw)}")
    expect_failure(reply, failure, raw)


def expect_failure(reply: Reply, failure: Failure | Code, raw: bytes) -> None:
    try:
        if isinstance(failure, Failure):
            reply.refused_with(failure)
        else:
            reply.refused_as(failure)
    except Unexpected as error:
        raise Unexpected(f"{error} for {_hex(raw)}") from error


def _hex(raw: bytes) -> str:
    return raw[:200].hex()


def _live_on(writer: SampleWriter, number: int) -> None:
    """Expect that a valid message is accepted with the next number after malformed ones."""
    if number % _BATCH == _BATCH - 1:
        writer.accepted()


def _steps() -> Iterator[tuple[str, Callable[[World], Any]]]:
    yield "hub-messages", messages
    yield "hub-signed-messages", signed_messages
    yield "hub-batches", batches
    yield "hub-requests", requests
    yield "hub-queries", queries


HUB_STEPS: Final = tuple(SelftestStep(name, step) for name, step in _steps())
