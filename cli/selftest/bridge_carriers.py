"""Bridge steps: carriers from one zone to the other, once, whole, in order and unharmed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bridge.carrier.check import check_carrier
from bridge.carrier.volume import HEADER_BYTES
from bridge.medium_bags import carriers
from bridge.refusal import Level
from cli.selftest.bridge_side import ORDERS
from cli.selftest.bridge_world import BridgeWorld, states
from cli.selftest.step import Step, expect, expect_that

_VOLUME: Final = "v001.agv"


def carry(world: BridgeWorld) -> None:
    """Two hubs, export, verification without any hub, import: every event as it was signed."""
    world.record(5)
    written = world.export()
    told = [(one.entry.stream, one.entry.from_seq, one.entry.to_seq) for one in written]
    expect("carriers", told, [(ORDERS, 1, 2), (ORDERS, 3, 4), (ORDERS, 5, 5)])
    medium = world.carry(*written)
    with world.means() as means:
        reports = [check_carrier(bags, Level.VALID, means) for bags in carriers([medium])]
    expect("verdicts", {one.verdict for one in reports}, {"valid"})
    expect("outcomes", states(world.bring(medium)), ["imported"] * 3)
    found = world.imported()
    for one in found:
        one.verify(world.z1.identity)
    expect("places at the origin", [one.receipt().stream_seq for one in found], [1, 2, 3, 4, 5])
    expect("disclosed", [one.body_key is not None for one in found], [True] * 5)
    expect("events", [one.origin_event() for one in found], world.recorded)
    expect("audit entries", world.audits(), ["import.begin", "import.success"] * 3)


def presented_again(world: BridgeWorld) -> None:
    """A carrier that comes twice goes in once, and the second time is on record."""
    world.record(2)
    medium = world.carry(*world.export())
    expect("the first time", states(world.bring(medium)), ["imported"])
    expect("the second time", states(world.bring(medium)), ["duplicate"])
    expect("events that are here", len(world.imported()), 2)
    expect("the last audit entry", world.audits()[-1], "import.duplicate")


def damaged(world: BridgeWorld) -> None:
    """A byte of a volume that changed on the way keeps its carrier out, with the reason."""
    world.record(2)
    written = world.export()
    medium = world.carry(*written)
    (volume,) = medium.rglob(_VOLUME)
    _flip(volume, world.random.randrange(HEADER_BYTES, volume.stat().st_size))
    (outcome,) = world.bring(medium)
    expect("a changed volume", (outcome.state.value, outcome.code), ("quarantined", "E.SIG/VOLUME"))
    expect("audit entries", world.audits(), ["import.quarantined"])
    (place,) = (world.z2.root / "import" / "quarantine").iterdir()
    expect_that((place / "reason.json").is_file(), "the reason lies beside it")
    expect("the sound one", states(world.bring(world.carry(*written))), ["imported"])


def behind_a_gap(world: BridgeWorld) -> None:
    """A bundle behind a gap waits, names the gap, and goes in by itself when it closes."""
    world.record(6)
    first, second, third = world.export()
    expect("the first", states(world.bring(world.carry(first))), ["imported"])
    (waits,) = world.bring(world.carry(third))
    told = f"events 3 to 4 of {ORDERS} are not here yet"
    expect("the third", (waits.state.value, waits.told), ("waiting", told))
    expect("events that are here", len(world.imported()), 2)
    closed = world.bring(world.carry(second))
    expect("the second, and what waited", states(closed), ["imported", "imported"])
    seqs = [one.receipt().stream_seq for one in world.imported()]
    expect("places at the origin", seqs, [1, 2, 3, 4, 5, 6])


def _flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


STEPS: Final = (
    Step("carry", carry),
    Step("presented-again", presented_again),
    Step("damaged", damaged),
    Step("behind-a-gap", behind_a_gap),
)
