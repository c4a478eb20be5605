"""Core steps: a client that has lost or damaged what it knew (RESYNC0)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cli.selftest.step import Step, expect, expect_raises, expect_that
from cli.selftest.world import World
from veen.client.client import Client
from veen.client.errors import StateLost
from veen.client.resync import Was
from veen.mmr import Peaks

_COUNT: Final = 12
_BACK: Final = 5


def resync_after_loss(world: World) -> None:
    """Without its state a client sends nothing; resync gives it back, and it goes on."""
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        _send(client, world, _COUNT)
        world.api().checkpoint(world.labels().at(0), _BACK)
    world.client_dir().state.unlink()
    with world.client() as client:
        client.renew(token)
        expect_raises("a message", StateLost, client.send, world.stream, b"x")
        client.withdraw(_COUNT + 1)
        found = client.resync(world.stream)
        told = (found.was, found.replayed, found.to_size, found.checkpoints_checked)
        expect("resync", told, (Was.LOST, _COUNT, _COUNT, 1))
        _expect_sound(client, world, _COUNT)
        sent = client.send(world.stream, b"on", capability=token)
        expect("the next message", (sent.msg.client_seq, sent.receipt.stream_seq), (13, 13))


def resync_when_behind(world: World) -> None:
    """What others wrote meanwhile is verified and taken in."""
    with world.client() as client:
        world.capability(client.session.identity.client_id)
        _send(client, world, 2)
        with world.client("other") as other:
            _send(other, world, _BACK)
        found = client.resync(world.stream)
        told = (found.was, found.from_size, found.to_size)
        expect("resync", told, (Was.BEHIND, 2, 2 + _BACK))
        _expect_sound(client, world, 2 + _BACK)


def verify_state(world: World) -> None:
    """A state that was altered on disk is found out, and mended from the log."""
    with world.client() as client:
        _send(client, world, _COUNT)
        _expect_sound(client, world, _COUNT)
        label = world.labels().at(0)
        view = client.session.view(label, world.stream, 0)
        wrong = (world.random.randbytes(32), *view.peaks.hashes[1:])
        client.session.keep(label, replace(view, peaks=Peaks(_COUNT, wrong)))
        expect_that(
            not client.verify_state(world.stream).consistent, "an altered state is inconsistent"
        )
        expect("resync", client.resync(world.stream).was, Was.DAMAGED)
        _expect_sound(client, world, _COUNT)


def _send(client: Client, world: World, count: int) -> None:
    token = world.capability(client.session.identity.client_id)
    bodies = (world.random.randbytes(16) for _ in range(count))
    expect("sent", len(list(client.send_many(world.stream, bodies, capability=token))), count)


def _expect_sound(client: Client, world: World, size: int) -> None:
    found = client.verify_state(world.stream)
    told = (found.consistent, found.local_seq, found.hub_seq, found.local_root == found.hub_root)
    expect("state", told, (True, size, size, True))


STEPS: Final = (
    Step("resync-after-loss", resync_after_loss),
    Step("resync-when-behind", resync_when_behind),
    Step("verify-state", verify_state),
)
