"""Property steps: one object, one encoding, for every type on the wire (spec 3.1)."""

from __future__ import annotations

from typing import Final

from cli.selftest.noncanonical import variants
from cli.selftest.samples import TYPES, carries_raw_items, sample
from cli.selftest.step import Step, expect, expect_raises, expect_that
from cli.selftest.world import World
from veen import cbor
from veen.errors import Malformed

_USUAL: Final = 20
_USUAL_REFUSED: Final = 2


def determinism(world: World) -> None:
    """What is encoded decodes to the same object, and that encodes to the same bytes."""
    for cls in TYPES:
        for _ in world.cases(_USUAL):
            made = sample(world.random, cls)
            raw = made.encode()
            found = cls.decode(raw)
            expect(f"{cls.__name__} decoded", found, made)
            expect(f"{cls.__name__} encoded again", cbor.dump(found.plain()), raw)


def other_encodings(world: World) -> None:
    """No other bytes are taken for the same object."""
    tried = 0
    for cls in TYPES:
        for _ in world.cases(_USUAL_REFUSED):
            raw = sample(world.random, cls).encode()
            for what, wrong in variants(raw, carries_raw_items(cls)):
                name = f"{cls.__name__} with {what}"
                expect_raises(name, Malformed, cls.decode, wrong)
                tried += 1
    expect_that(tried >= len(TYPES), "every type was tried")


STEPS: Final = (
    Step("cbor-determinism", determinism),
    Step("cbor-other-encodings", other_encodings),
)
