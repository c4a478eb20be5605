"""What an exporter could sign that is wrong: both verifiers say the same of it, and none breaks."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

from bridge.carrier.bag import SIGNATURE, TAGGED, TAGMANIFEST, tagmanifest
from bridge.carrier.format import CarrierSig, Packing
from support.bridge import bridge_world
from support.long_form import LONG

COUNT = 5_000 if LONG else 300


def mutated(raw: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(raw))
    change = chance.choice(("flip", "flip", "cut", "insert", "small"))
    if change == "flip":
        return raw[:at] + bytes([raw[at] ^ (1 << chance.randrange(8))]) + raw[at + 1 :]
    if change == "cut":
        return raw[:at] + raw[at + chance.randrange(1, 40) :]
    if change == "insert":
        return raw[:at] + chance.randbytes(chance.randrange(1, 4)) + raw[at:]
    # A small number where one stands: counts, sizes, versions.
    places = [n for n, byte in enumerate(raw) if byte < 24]
    at = chance.choice(places)
    return raw[:at] + bytes([chance.randrange(24)]) + raw[at + 1 :]


def sign_again(bag: Path) -> None:
    tags = {name: (bag / name).read_bytes() for name in TAGGED}
    (bag / TAGMANIFEST).write_bytes(tagmanifest(tags))
    signature = CarrierSig.of(bridge_world.EXPORTER, tagmanifest(tags))
    (bag / SIGNATURE).write_bytes(signature.encode())


def test_no_table_that_is_wrong_is_accepted(carrier_factory: Any, grown_world: Any) -> None:
    (bag,) = carrier_factory.carry(grown_world.bundle(2, 4), Packing(volume_bytes=1500))
    path, chance = bag / "carrier.cbor", random.Random(11)
    raw = path.read_bytes()
    counter: Counter[str] = Counter()
    for _ in range(COUNT):
        forged = mutated(raw, chance)
        # The name of the tool and of the bridge are anyone's to choose.
        if forged == raw or is_free(raw, forged):
            continue
        path.write_bytes(forged)
        sign_again(bag)
        counter[carrier_factory.both([bag])] += 1
    assert "valid" not in counter
    assert len(counter) >= 4


def is_free(raw: bytes, forged: bytes) -> bool:
    """Whether the change lies within the tool's name or the bridge's id alone."""
    if len(raw) != len(forged):
        return False
    tool, bridge = raw.index(b"veen "), raw.index(bytes([0x02, 0x58, 0x20]), 60) + 3
    free = {*range(tool, tool + 10), *range(bridge, bridge + 32)}
    return {at for at in range(len(raw)) if raw[at] != forged[at]} <= free
