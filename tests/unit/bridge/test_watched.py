"""Whoever watches sees every part of the work on a carrier to its end, and how old it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.codec import Sealing
from bridge.carrier.directory import Directory
from bridge.carrier.format import CarrierLedger, Packing
from bridge.carrier.medium import verify_written, write_medium
from bridge.carrier.verify import transcript
from bridge.carrier.writer import Content, stage
from bridge.errors import Level
from bridge.exporter.build import Workshop
from support.bridge import bridge_world
from support.bridge.held_roots import HeldRoots
from veen.crypto import hpke_public_key
from veen.digest import h
from veen.system.environment import Progress

PRIVATE = h(b"zone 2")
SEALING = Sealing(hpke_public_key(PRIVATE), h(b"secret"))
DAY = 86_400


@dataclass
class Watcher:
    """What was heard of each part of the work, the last time."""

    heard: dict[str, tuple[int, int | None, str]] = field(default_factory=dict)

    @contextmanager
    def watch(self, what: str, unit: str) -> Iterator[Progress]:
        def progress(done: int, due: int | None) -> None:
            self.heard[what] = (done, due, unit)

        yield progress

    def ended(self) -> set[str]:
        """The parts that were told to their end."""
        return {what for what, (done, due, _) in self.heard.items() if done == due}


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def test_every_part_of_building_a_carrier_is_reported(
    carrier_factory: Any, grown_world: Any, watcher: Watcher
) -> None:
    raw, place = grown_world.bundle(2, 8), carrier_factory.new()
    (place / "content").write_bytes(raw)
    (place / "staging").mkdir()
    ledger = CarrierLedger(bridge_id=h(b"bridge")).with_bundle(bridge_world.parts(raw)[0])
    packing = Packing(volume_bytes=900, parity=2, compress=True)
    content = Content(file=place / "content", ledger=ledger)
    stage(content, packing, bridge_world.EXPORTER, place / "staging", SEALING, watcher.watch)
    due = {"packing", "sealing", "hashing what is carried", "cutting volumes", "making parity"}
    assert watcher.ended() == watcher.heard.keys() == due | {"hashing volumes"}


def test_every_part_of_a_check_is_reported(
    carrier_factory: Any, grown_world: Any, watcher: Watcher
) -> None:
    packing = Packing(volume_bytes=2000, parity=1, compress=True)
    (bag,) = carrier_factory.carry(grown_world.bundle(2, 8), packing, SEALING)
    (bag / "data" / "v001.agv").unlink()
    assert carrier_factory.check([bag], Level.INTACT, watch=watcher.watch).ok
    assert watcher.heard.keys() == {"hashing volumes"}
    assert carrier_factory.check([bag], watch=watcher.watch, privates=[PRIVATE]).ok
    due = {"hashing volumes", "rebuilding from parity", "unpacking", "verifying"}
    assert watcher.ended() == watcher.heard.keys() == due
    assert watcher.heard["verifying"] == (7, 7, "events")


def test_the_proof_of_the_exporter_itself_is_reported(
    carrier_factory: Any, grown_world: Any, watcher: Watcher
) -> None:
    raw, place = grown_world.bundle(2, 8), carrier_factory.new()
    (place / "bundle").write_bytes(raw)
    workshop = Workshop(
        hub=bridge_world.IDENTITY,
        signer=bridge_world.EXPORTER,
        packing=Packing(volume_bytes=900),
        recipient=None,
        watch=watcher.watch,
    )
    workshop.prove(bridge_world.parts(raw)[0], place / "bundle", HeldRoots())
    assert watcher.heard == {f"proving {bridge_world.STREAM}": (7, 7, "events")}


def test_bytes_are_reported_as_they_are_written_and_as_they_are_read(
    carrier_factory: Any, grown_world: Any, watcher: Watcher
) -> None:
    (bag,) = carrier_factory.carry(grown_world.bundle(2, 8), Packing(volume_bytes=900))
    size = sum(path.stat().st_size for path in bag.rglob("*") if path.is_file())
    with watcher.watch("written", "bytes") as progress:
        root = write_medium(bag, carrier_factory.new(), progress)
    with watcher.watch("looked at", "bytes") as progress, Directory.root(root) as opened:
        verify_written(bag, opened, progress)
    assert watcher.heard["written"] == (2 * size, 2 * size, "bytes")
    assert watcher.heard["looked at"] == (size, size, "bytes")


@pytest.fixture
def bags(carrier_factory: Any, grown_world: Any) -> list[Path]:
    paths: list[Path] = carrier_factory.carry(grown_world.bundle(2, 8))
    return paths


@pytest.mark.parametrize(
    ("later", "detail"),
    [
        (3 * DAY + 5, "3 days old"),
        (DAY, "1 day old"),
        (7200, "2 hours old"),
        (61, "less than an hour old"),
        (0, "less than an hour old"),
        (-7200, "2 hours ahead of this clock"),
    ],
)
def test_a_transcript_tells_how_old_the_checkpoint_is(
    carrier_factory: Any, grown_world: Any, bags: list[Path], later: int, detail: str
) -> None:
    report = carrier_factory.check(bags, now=grown_world.checkpoint().created_at + later)
    assert report.ok
    assert f"age          checkpoint is {detail}\n" in transcript(report)
    assert "checked by   veen 0.0.1, which reads format 1\n" in transcript(report)
    assert "made by      veen 0.0.1, in format 1\n" in transcript(report)


def test_nothing_is_too_old_unless_somebody_says_so(
    carrier_factory: Any, grown_world: Any, bags: list[Path]
) -> None:
    created_at = grown_world.checkpoint().created_at
    assert carrier_factory.check(bags, now=created_at + 10_000 * DAY).ok
    assert carrier_factory.check(bags, now=created_at + 3 * DAY, max_age_sec=3 * DAY).ok
    report = carrier_factory.check(bags, now=created_at + 4 * DAY, max_age_sec=3 * DAY)
    assert report.verdict == "E.TIME/AGE"
    assert "its checkpoint is 4 days old, more than 3 days" in str(report.refusal)


def test_a_heartbeat_has_an_age_too(carrier_factory: Any, grown_world: Any) -> None:
    checkpoint = grown_world.checkpoint()
    ledger = CarrierLedger(bridge_id=h(b"bridge")).with_heartbeat(checkpoint)
    bags = carrier_factory.carry(checkpoint.encode(), ledger=ledger)
    report = carrier_factory.check(bags, now=checkpoint.created_at + 9)
    assert (report.verdict, report.age_sec) == ("valid", 9)
