"""A carrier: cut, packed, sealed, lost in part and put together again."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from dataclasses import replace
from itertools import combinations
from typing import Any

import bagit
import pytest

from bridge.carrier.bag import bag_name
from bridge.carrier.codec import Sealing
from bridge.carrier.format import HEADER_BYTES, BadPacking, CarrierLedger, Packing, Preset
from bridge.carrier.verify import transcript
from bridge.errors import CarrierFault, Level
from bridge.trust import TrustStore
from support.bridge import bridge_world
from veen.crypto import hpke_public_key
from veen.digest import h

PACKINGS = {
    "any": Preset.ANY.packing(),
    "volumes": Packing(volume_bytes=900),
    "discs": Packing(volume_bytes=900, volumes_per_bag=2, parity=1),
    "packed": Packing(volume_bytes=900, compress=True, parity=2),
}
PRIVATE = h(b"zone 2")
SEALING = Sealing(hpke_public_key(PRIVATE), h(b"fresh"))


@pytest.fixture(scope="session")
def raw(grown_world: Any) -> bytes:
    bundle: bytes = grown_world.bundle(2, 8)
    return bundle


@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)
@pytest.mark.parametrize("sealing", [None, SEALING], ids=["open", "sealed"])
def test_stock_tools_accept_every_bag(
    carrier_factory: Any, raw: bytes, packing: Packing, sealing: Sealing | None
) -> None:
    for bag in carrier_factory.carry(raw, packing, sealing):
        for manifest in ("manifest-sha256.txt", "tagmanifest-sha256.txt"):
            subprocess.run(["sha256sum", "-c", "--strict", manifest], cwd=bag, check=True)
        bagit.Bag(str(bag)).validate()
        assert len(bag.name) <= 64
        assert set(bag.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")


@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)
@pytest.mark.parametrize("sealing", [None, SEALING], ids=["open", "sealed"])
def test_the_bundle_comes_back_however_it_is_cut(
    carrier_factory: Any, raw: bytes, packing: Packing, sealing: Sealing | None
) -> None:
    report = carrier_factory.check(carrier_factory.carry(raw, packing, sealing), privates=[PRIVATE])
    assert report.verdict == "valid"
    assert report.held == list(Level)
    assert report.bundle.header == bridge_world.parts(raw)[0]


@pytest.mark.parametrize("packing", [PACKINGS["packed"], PACKINGS["any"]], ids=["packed", "sealed"])
def test_the_standalone_verifier_says_what_it_cannot_do(
    carrier_factory: Any, raw: bytes, packing: Packing
) -> None:
    bags = carrier_factory.carry(raw, packing, None if packing.compress else SEALING)
    assert carrier_factory.standalone(bags) == "UNSUPPORTED"


@pytest.mark.parametrize("compress", [False, True])
def test_every_loss_up_to_the_parity_is_made_good_and_one_more_is_named(
    carrier_factory: Any, raw: bytes, compress: bool
) -> None:
    (bag,) = carrier_factory.carry(raw, Packing(volume_bytes=2000, parity=2, compress=compress))
    stored = {path: path.read_bytes() for path in sorted((bag / "data").iterdir())}
    for count in range(4):
        for lost in combinations(stored, count):
            for path in lost:
                path.unlink()
            report = carrier_factory.check([bag])
            assert report.verdict == ("valid" if count <= 2 else "E.SIZE/INCOMPLETE")
            detail = "\n".join([*report.notes, str(report.refusal)])
            assert all(path.name in detail for path in lost)
            for path in lost:
                path.write_bytes(stored[path])


def test_a_changed_volume_is_made_good_like_a_lost_one(carrier_factory: Any, raw: bytes) -> None:
    (bag,) = carrier_factory.carry(raw, Packing(volume_bytes=2000, parity=1))
    path = bag / "data" / "v002.agv"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    report = carrier_factory.check([bag])
    assert report.verdict == "valid"
    detail = "data/v002.agv is changed between byte 86 and its end at 2000"
    assert report.notes == [f"{detail}: made good from parity"]
    (bag / "data" / "p001.agv").unlink()
    assert carrier_factory.both([bag]) == "E.SIG/VOLUME"
    assert detail in str(carrier_factory.check([bag]).refusal)


@pytest.mark.parametrize("at", [42, 50, 60])
def test_a_change_in_the_header_of_a_volume_is_found_to_the_byte(
    carrier_factory: Any, raw: bytes, at: int
) -> None:
    (bag,) = carrier_factory.carry(raw)
    path = bag / "data" / "v001.agv"
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    refusal = carrier_factory.check([bag], Level.INTACT).refusal
    assert (refusal.fault, refusal.offset) == (CarrierFault.VOLUME, at)
    assert f"data/v001.agv is changed at byte {at}, in its header" in str(refusal)


def test_a_sector_that_cannot_be_read_is_named(
    carrier_factory: Any, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bag,) = carrier_factory.carry(raw)
    real = os.pread

    def failing(fd: int, size: int, at: int) -> bytes:
        if size > HEADER_BYTES:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", failing)
    refusal = carrier_factory.check([bag], Level.INTACT).refusal
    assert refusal.fault is CarrierFault.VOLUME
    assert "data/v001.agv cannot be read from byte 0 on: Input/output error" in str(refusal)


def test_headers_decide_and_not_names(carrier_factory: Any, raw: bytes) -> None:
    (bag,) = carrier_factory.carry(raw, Packing(volume_bytes=2000))
    data = bag / "data"
    (data / "v001.agv").rename(data / "x")
    (data / "v002.agv").rename(data / "v001.agv")
    (data / "x").rename(data / "V002.AGV")
    shutil.copy(data / "v003.agv", data / "copy")
    assert carrier_factory.both([bag]) == "valid"


def test_strange_files_are_noted_and_left_alone(
    carrier_factory: Any, raw: bytes, grown_world: Any
) -> None:
    (bag,) = carrier_factory.carry(raw)
    (other,) = carrier_factory.carry(grown_world.bundle(1, 1))
    shutil.copy(other / "data" / "v001.agv", bag / "data" / "v002.agv")
    (bag / "evil\x1b[2J\n.txt").write_bytes(b"")
    (bag / "data" / "link").symlink_to("/etc/passwd")
    os.mkfifo(bag / "data" / "pipe")
    report = carrier_factory.check([bag])
    assert carrier_factory.both([bag]) == "valid"
    assert len(report.notes) == 4
    text = transcript(report)
    assert text.isascii()
    assert all(line.isprintable() for line in text.splitlines())


def test_discs_of_one_set_need_each_other_and_name_what_is_missing(
    carrier_factory: Any, raw: bytes
) -> None:
    bags = carrier_factory.carry(raw, PACKINGS["discs"])
    assert len(bags) > 2
    assert carrier_factory.both(bags) == "valid"
    assert carrier_factory.both(bags[::-1]) == "valid"
    report = carrier_factory.check(bags[1:])
    assert report.verdict == "E.SIZE/INCOMPLETE"
    assert "data/v001.agv is missing (medium 1 of" in str(report.refusal)


def test_a_bag_of_another_carrier_is_left_alone(
    carrier_factory: Any, raw: bytes, grown_world: Any
) -> None:
    bags = [*carrier_factory.carry(raw), *carrier_factory.carry(grown_world.bundle(1, 1))]
    assert carrier_factory.both(bags) == "valid"
    assert "of another carrier" in carrier_factory.check(bags).notes[0]


def test_refuses_an_unknown_exporter(carrier_factory: Any, raw: bytes) -> None:
    bags = carrier_factory.carry(raw)
    (carrier_factory.trust_dir / "exporter-z1.pub").unlink()
    carrier_factory.trust = TrustStore.read(carrier_factory.trust_dir)
    assert carrier_factory.both(bags) == "E.AUTH/SIGNER"


def test_refuses_a_ledger_that_enters_something_else(
    carrier_factory: Any, raw: bytes, grown_world: Any
) -> None:
    (bag,) = carrier_factory.carry(raw)
    other = CarrierLedger(bridge_id=h(b"bridge")).with_bundle(
        bridge_world.parts(grown_world.bundle(1, 1))[0]
    )
    bridge_world.resign(bag, replace(bridge_world.carrier_of(bag), ledger=other))
    assert carrier_factory.both([bag]) == "E.SEQ/LEDGER"


def test_a_heartbeat_carries_a_checkpoint_alone(carrier_factory: Any, grown_world: Any) -> None:
    checkpoint = grown_world.checkpoint()
    ledger = CarrierLedger(bridge_id=h(b"bridge")).with_heartbeat(checkpoint)
    bags = carrier_factory.carry(checkpoint.encode(), ledger=ledger)
    assert carrier_factory.both(bags) == "valid"
    assert carrier_factory.check(bags).heartbeat == checkpoint
    assert "-heartbeat-1-" in bags[0].name
    bagit.Bag(str(bags[0])).validate()


def test_refuses_a_heartbeat_that_the_hub_did_not_sign(
    carrier_factory: Any, grown_world: Any
) -> None:
    checkpoint = grown_world.checkpoint().signed(bridge_world.CLIENT)
    ledger = CarrierLedger(bridge_id=h(b"bridge")).with_heartbeat(checkpoint)
    assert (
        carrier_factory.both(carrier_factory.carry(checkpoint.encode(), ledger=ledger))
        == "E.SIG/CHECKPOINT"
    )


@pytest.mark.parametrize("level", Level)
def test_a_report_says_which_levels_were_tested(
    carrier_factory: Any, raw: bytes, level: Level
) -> None:
    report = carrier_factory.check(carrier_factory.carry(raw), level)
    assert report.held == list(Level)[: list(Level).index(level) + 1]
    text = transcript(report)
    assert text == transcript(report)
    assert text.count("not tested") == 3 - len(report.held)


def test_a_changed_byte_is_complete_but_not_intact(carrier_factory: Any, raw: bytes) -> None:
    (bag,) = carrier_factory.carry(raw)
    path = bag / "data" / "v001.agv"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert carrier_factory.check([bag], Level.COMPLETE).verdict == "complete"
    assert carrier_factory.check([bag], Level.INTACT).verdict == "E.SIG/VOLUME"


@pytest.mark.parametrize(
    "packing",
    [Packing(volume_bytes=256), Packing(volume_bytes=300, parity=55)],
    ids=["volumes", "parity"],
)
def test_refuses_to_make_too_many_volumes(carrier_factory: Any, packing: Packing) -> None:
    world = bridge_world.World(body_bytes=60_000).grow(2)
    with pytest.raises(BadPacking):
        carrier_factory.carry(world.bundle(1, 2), packing)


@pytest.mark.parametrize(
    "bad", [{"volume_bytes": 10}, {"volume_bytes": 999, "parity": 56}, {"volume_bytes": 0}], ids=str
)
def test_refuses_packings_that_cannot_be(bad: dict[str, Any]) -> None:
    with pytest.raises(BadPacking):
        Packing(**bad)


def test_the_longest_name_is_short_enough(carrier_factory: Any, raw: bytes) -> None:
    (bag,) = carrier_factory.carry(raw)
    carrier = bridge_world.carrier_of(bag)
    assert carrier.ledger is not None
    entry = replace(carrier.ledger.tail[-1], from_seq=2**64 - 1)
    longest = replace(carrier, bags=500, ledger=replace(carrier.ledger, tail=(entry,)))
    assert len(bag_name(longest, 500)) <= 64
