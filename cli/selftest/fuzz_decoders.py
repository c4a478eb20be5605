"""Fuzz steps: broken bytes are Malformed to every decoder, and nothing worse (spec 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from cli.selftest.damage import broken
from cli.selftest.samples import TYPES, sample
from cli.selftest.step import Step, Unexpected, expect
from cli.selftest.world import World
from veen import cbor
from veen.checkpoint import Checkpoint
from veen.errors import Malformed
from veen.msg import Msg
from veen.proof import MmrProof
from veen.receipt import Receipt
from veen.wire import WireObject

_USUAL: Final = 1_000
_NAMED: Final = (Msg, Receipt, Checkpoint, MmrProof)


def decoding(types: Sequence[type[WireObject]]) -> Callable[[World], None]:
    def step(world: World) -> None:
        for number in world.cases(_USUAL):
            cls = types[number % len(types)]
            raw = broken(world.random, sample(world.random, cls).encode())
            _try(cls, raw)

    return step


def _try(cls: type[WireObject], raw: bytes) -> None:
    """Refused, or another object that has just these bytes."""
    try:
        found = cls.decode(raw)
    except Malformed:
        return
    except Exception as error:
        raise Unexpected(
            f"expected {cls.__name__} to be refused as Malformed, found "
            f"{type(error).__name__} for {raw[:200].hex()}"
        ) from error
    expect(f"the only encoding of a {cls.__name__}", cbor.dump(found.plain()), raw)


STEPS: Final = (
    Step("decode-msg", decoding([Msg])),
    Step("decode-receipt", decoding([Receipt])),
    Step("decode-checkpoint", decoding([Checkpoint])),
    Step("decode-mmr-proof", decoding([MmrProof])),
    Step("decode-envelopes", decoding([one for one in TYPES if one not in _NAMED])),
)
