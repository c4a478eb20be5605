"""Property steps: what must hold however often one sends to a hub (spec 4.2, 7)."""

from __future__ import annotations

from typing import Final

from cli.selftest.step import Step, expect
from cli.selftest.world import World
from veen.ciphertext import Ciphertext
from veen.msg import Msg
from veen.profile import DEFAULT_PROFILE
from veen.receipt import Receipt
from veen.seal import Place

_USUAL_DUPLICATES: Final = 60
_USUAL_NONCES: Final = 500


def duplicate_rejection(world: World) -> None:
    """Any earlier message, sent again at any time, is refused and told its place."""
    writer = world.writer()
    sent: list[tuple[Msg, Receipt]] = []
    for _ in world.cases(_USUAL_DUPLICATES):
        msg = writer.msg(world.random.randbytes(8))
        sent.append((msg, writer.accepted(msg)))
        writer.known(*world.random.choice(sent))
    head = world.api().receipt(writer.labels.at(0), writer.prev_ack)
    expect("the last of the label", head, sent[-1][1])


def nonce_uniqueness(world: World) -> None:
    """The same body again and again: no nonce, no key and no ciphertext comes twice."""
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        bodies = (b"the same" for _ in world.cases(_USUAL_NONCES))
        sent = [one.msg for one in client.send_many(world.stream, bodies, capability=token)]
    expect("sent", len(sent), len(world.cases(_USUAL_NONCES)))
    for what, values in (
        ("nonces", {Place.of(one, DEFAULT_PROFILE).nonce() for one in sent}),
        ("ephemeral keys", {Ciphertext.decode(one.ciphertext, 0).enc for one in sent}),
        ("sealed bodies", {Ciphertext.decode(one.ciphertext, 0).body for one in sent}),
        ("places", {(one.client_seq, one.label) for one in sent}),
    ):
        expect(f"different {what}", len(values), len(sent))


STEPS: Final = (
    Step("duplicate-rejection", duplicate_rejection),
    Step("nonce-uniqueness", nonce_uniqueness),
)
