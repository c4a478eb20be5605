"""Core steps: who may write, where, how long and how fast (spec 6)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from cli.selftest.step import Step, Unexpected, expect, expect_raises
from cli.selftest.world import World
from veen import captoken
from veen.captoken import CapToken
from veen.errors import Failure, Rejected
from veen.rate import Rate
from veen.stream import stream_id

_TTL_SEC: Final = 2
_BURST: Final = 3
_PATIENCE_SEC: Final = 30.0


def use(world: World) -> None:
    """Issue, authorize, use; the hub tells what it knows, and a second time changes nothing."""
    with world.client() as client:
        token = world.token(client.session.identity.client_id)
        first = world.api().authorize(token)
        expect("auth_ref", first.auth_ref, token.auth_ref())
        expect("expires_at", first.expires_at, token.expires_at(first.issued_at))
        expect("the second time", world.api().authorize(token).receipt, first.receipt)
        known = world.api().capability(token.auth_ref())
        expect("what the hub knows", (known.token, known.issued_at), (token, first.issued_at))
        sent = client.send(world.stream, b"allowed", capability=token)
        expect("auth_ref of the message", sent.msg.auth_ref, token.auth_ref())


def missing(world: World) -> None:
    with world.client() as client:
        error = expect_raises(
            "a message without a capability", Rejected, client.send, world.stream, b""
        )
        expect("refusal", _failure(error), Failure.CAP_MISSING)
    stranger = world.stranger()
    stranger.refused(Failure.CAP_MISSING, stranger.msg())


def unknown(world: World) -> None:
    """A capability that the hub was never told of counts for nothing, however good."""
    stranger = world.stranger()
    token = world.token(stranger.key.public)
    stranger.auth_ref = token.auth_ref()
    stranger.refused(Failure.CAP_MISSING, stranger.msg())
    world.api().authorize(token)
    stranger.accepted()


def wrong_subject(world: World) -> None:
    owner, thief = world.writer(), world.stranger()
    thief.auth_ref = owner.auth_ref
    thief.refused(Failure.AUTH_REF, thief.msg())
    owner.accepted()


def wrong_stream(world: World) -> None:
    writer = world.stranger()
    token = world.token(writer.key.public, stream=f"{world.stream}/other")
    world.api().authorize(token)
    writer.auth_ref = token.auth_ref()
    writer.refused(Failure.AUTH_REF, writer.msg())


def forged(world: World) -> None:
    """Neither a foreign issuer nor a broken signature makes a capability."""
    subject, foreign = world.key(), world.key()
    named = [stream_id(world.stream)]
    by_foreign = captoken.issue(foreign, subject_pk=subject.public, stream_ids=named, ttl=60)
    mine = world.token(subject.public)
    link = mine.sig_chain[0]
    broken = replace(mine, sig_chain=(bytes([link[0] ^ 1]) + link[1:],))
    longer = replace(mine, allow=replace(mine.allow, ttl=mine.allow.ttl + 1))
    for token in (by_foreign, broken, longer):
        _refuse(world, token)


def _refuse(world: World, token: CapToken) -> None:
    reply = world.probe.post("/tooling/authorize", token.encode())
    reply.refused_with(Failure.CAP_INVALID)


def expired(world: World) -> None:
    writer = world.stranger()
    token = world.token(writer.key.public, ttl=_TTL_SEC)
    issued_at = world.api().authorize(token).issued_at
    writer.auth_ref = token.auth_ref()
    writer.accepted()
    _wait_until_after(world, token.expires_at(issued_at))
    writer.refused(Failure.CAP_TTL, writer.msg())


def _wait_until_after(world: World, second: int) -> None:
    api, deadline = world.api(), time.monotonic() + _PATIENCE_SEC
    while api.status().hub_ts <= second:
        if time.monotonic() > deadline:
            raise Unexpected(f"expected the hub's time to pass {second}")
        time.sleep(0.05)


def rate(world: World) -> None:
    """A burst of so many and not one more, where nothing is refilled."""
    writer = world.stranger()
    limited = world.capability(writer.key.public, rate=Rate(per_sec=0, burst=_BURST))
    writer.auth_ref = limited.auth_ref()
    for _ in range(_BURST):
        writer.accepted()
    writer.refused(Failure.CAP_RATE, writer.msg())


def _failure(error: Exception) -> Failure | None:
    return error.failure if isinstance(error, Rejected) else None


STEPS: Final = (
    Step("capability-use", use),
    Step("capability-missing", missing),
    Step("capability-unknown", unknown),
    Step("capability-wrong-subject", wrong_subject),
    Step("capability-wrong-stream", wrong_stream),
    Step("capability-forged", forged),
    Step("capability-expired", expired),
    Step("capability-rate", rate),
)
