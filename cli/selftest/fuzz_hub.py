"""Fuzz steps: a hub answers broken bytes with the right error, and lives on (spec 8.1, 10.6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from cli.selftest.damage import broken
from cli.selftest.probe import Reply, submit_request
from cli.selftest.samples import sample
from cli.selftest.step import Step, Unexpected, expect
from cli.selftest.verdict import verdict
from cli.selftest.world import World
from cli.selftest.writer import Writer
from hub.api.routes import ROUTES, Route
from veen import cbor
from veen.envelope import BatchRequest, BatchResponse
from veen.errors import Code, Failure, Malformed

_USUAL: Final = 200
_BATCH: Final = 25
_LARGEST: Final = 16
_JSON: Final = "application/json"


def messages(world: World) -> None:
    """Each broken message is refused at the stage where it breaks."""
    writer = world.writer()
    for number in world.cases(_USUAL):
        raw = broken(world.random, writer.msg(world.random.randbytes(8)).encode())
        _judge(world.probe.post("/v1/submit", submit_request(raw)), raw)
        _live_on(writer, number)
    writer.accepted()


def signed_messages(world: World) -> None:
    """What its client signed can be as wrong as what nobody did."""
    writer = world.writer()
    for number in world.cases(_USUAL):
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
    """Within a batch each message fails by itself; the right one among them is taken."""
    writer = world.writer()
    for number in world.cases(_USUAL // 4):
        good = writer.msg().encode()
        wrong = [_well_formed(world, good) for _ in range(world.random.randrange(_LARGEST))]
        place = world.random.randint(0, len(wrong))
        batch = BatchRequest(msgs=(*wrong[:place], good, *wrong[place:]))
        reply = world.probe.post("/v1/submit_batch", batch.encode())
        expect("status of the batch", reply.status, 200)
        results = BatchResponse.decode(reply.body).results
        taken = [index for index, one in enumerate(results) if one.receipt is not None]
        expect("which of the batch were taken", taken, [place])
        writer.client_seq, writer.prev_ack = writer.client_seq + 1, writer.prev_ack + 1
        _live_on(writer, number)
    writer.accepted()


def _well_formed(world: World, raw: bytes) -> bytes:
    """Broken, but still one CBOR item, so that the batch around it stands."""
    while True:
        found = broken(world.random, raw)
        try:
            if cbor.skip(found, 0) == len(found) and found != b"\xf6":
                return found
        except Malformed:
            continue


def requests(world: World) -> None:
    """Broken requests to every route, in CBOR and in JSON."""
    writer = world.writer()
    writer.accepted()
    routes = [one for one in ROUTES if one.request is not None]
    for number in world.cases(_USUAL):
        route = routes[number % len(routes)]
        body, media = _broken_request(world, route)
        _expect_answer(route, world.probe.post(route.path, body, media=media), body)
        _live_on(writer, number)
    writer.accepted()


def _broken_request(world: World, route: Route) -> tuple[bytes, str]:
    made = sample(world.random, route.request)
    if world.random.random() < 0.3:
        return broken(world.random, json.dumps(made.to_json()).encode()), _JSON
    media = world.random.choice(["application/cbor"] * 9 + ["text/plain"])
    return broken(world.random, made.encode()), media


def queries(world: World) -> None:
    """The same for routes that are asked by GET."""
    writer = world.writer()
    routes = [one for one in ROUTES if one.request is None and one.query is not None]
    for number in world.cases(_USUAL // 4):
        route = routes[number % len(routes)]
        text = world.random.choice(["label=", "auth_ref=", "label=zz&", "from_seq=-1&", "x=1&"])
        filling = world.random.randbytes(world.random.choice((0, 3, 31, 32, 33))).hex()
        reply = world.probe.get(f"{route.path}?{text}{filling}")
        _expect_answer(route, reply, f"{text}{filling}".encode())
        _live_on(writer, number)
    writer.accepted()


def _expect_answer(route: Route, reply: Reply, body: bytes) -> None:
    """A well-formed answer or a well-formed error; never a failure of the hub's own."""
    if reply.status == 200:
        if route.response is not None:
            route.response.decode(reply.body)
        return
    found = reply.refusal()
    if found.code == Code.UNAVAILABLE.value:
        raise Unexpected(
            f"{route.path}: expected a refusal, found {found.message} for {_hex(body)}"
        )


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


def _live_on(writer: Writer, number: int) -> None:
    """After each batch of broken ones a right message is taken, with the next number."""
    if number % _BATCH == _BATCH - 1:
        writer.accepted()


def _steps() -> Iterator[tuple[str, Callable[[World], Any]]]:
    yield "hub-messages", messages
    yield "hub-signed-messages", signed_messages
    yield "hub-batches", batches
    yield "hub-requests", requests
    yield "hub-queries", queries


STEPS: Final = tuple(Step(name, step) for name, step in _steps())
