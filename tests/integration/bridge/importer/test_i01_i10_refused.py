"""Carriers and bundles of which something does not hold: nothing of them goes in (I1-I10)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.bundle import BundleEvent, Header
from bridge.carrier.codec import Sealing
from bridge.carrier.directory import BagPath
from bridge.carrier.format import Packing
from bridge.importer.staging import check_signed, fetch
from bridge.trust import TrustStore, pin_exporter
from support.bridge import bridge_world
from support.long_form import LONG
from veen.crypto import SigningKey, hpke_public_key
from veen.digest import h
from veen.proofs import RangeProof
from veen.wire import cbor

SMALL = Packing(volume_bytes=1200)


def bag_of(medium: Path) -> Path:
    (bag,) = (path for path in medium.iterdir() if path.is_dir())
    return bag


def _refused(zone: Any, medium: Path, code: str, state: str = "quarantined") -> Any:
    """One carrier, refused with the code, audited once, and nothing imported."""
    result = zone.run(medium)
    assert [(outcome.state.value, outcome.code) for outcome in result.outcomes] == [(state, code)]
    (entry,) = (
        audit for audit in zone.audits() if audit.KIND in ("import.quarantined", "import.failed")
    )
    assert entry.code == code
    zone.check([])
    if state == "quarantined":
        assert zone.reason()["code"] == code
        assert zone.files("inbox") == []
    return entry


class Removed:
    """A medium that cannot be read any more from the n-th read on; 0 is never."""

    def __init__(self, at: int) -> None:
        self.reads = 0
        self._at = at
        self._read = os.read

    def __call__(self, fd: int, size: int) -> bytes:
        self.reads += 1
        if self._at and self.reads >= self._at:
            raise OSError(5, "Input/output error")
        return self._read(fd, size)


def test_i01_a_medium_that_is_removed_at_any_byte_of_it_leaves_nothing_behind(
    import_zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium = import_zone.carry(import_zone.bundle(1, 5), SMALL)
    whole = Removed(0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "read", whole)
        bag = BagPath.of(bag_of(medium))
        signed = check_signed(bag, TrustStore.read(import_zone.settings.trust), 1 << 30)
        fetch(signed, import_zone.root / ".copy")
    step = 1 if LONG else whole.reads // 3
    tried = range(1, whole.reads + 1, step)
    for at in tried:
        with monkeypatch.context() as patched:
            patched.setattr(os, "read", Removed(at))
            (outcome,) = import_zone.run(medium).outcomes
        assert outcome.state.value == "incomplete", at
        assert "cannot be read: Input/output error" in outcome.detail
        assert import_zone.files("inbox") == []
    assert import_zone.kinds() == ["import.failed"] * len(tried)
    import_zone.check_now([])
    assert import_zone.states(medium) == ["imported"]
    import_zone.check([1, 2, 3, 4, 5])


def test_i02_lost_volumes_are_made_good_up_to_parity(import_zone: Any) -> None:
    medium = import_zone.carry(import_zone.bundle(1, 5), replace(SMALL, parity=1))
    (bag_of(medium) / "data" / "v002.agv").unlink()
    assert import_zone.states(medium) == ["imported"]
    import_zone.check([1, 2, 3, 4, 5])
    (success,) = (audit for audit in import_zone.audits() if audit.KIND == "import.success")
    assert "v002.agv" in success.verification_result


def test_i02_more_lost_volumes_are_named_and_the_carrier_waits_for_them(import_zone: Any) -> None:
    medium = import_zone.carry(import_zone.bundle(1, 5), SMALL)
    volume = bag_of(medium) / "data" / "v002.agv"
    raw = volume.read_bytes()
    volume.unlink()
    entry = _refused(import_zone, medium, "E.SIZE/INCOMPLETE", "incomplete")
    assert "v002.agv is missing" in entry.detail
    (waiting,) = import_zone.files("inbox")
    (import_zone.import_dir.inbox / waiting / "data" / "v002.agv").write_bytes(raw)
    assert import_zone.states() == ["imported"]
    import_zone.check([1, 2, 3, 4, 5])


def test_i02_the_media_of_a_set_may_come_one_by_one(import_zone: Any) -> None:
    medium = import_zone.carry(import_zone.bundle(1, 5), replace(SMALL, volumes_per_bag=2))
    bags = sorted(medium.iterdir())
    assert len(bags) > 1
    for bag in bags[:-1]:
        assert import_zone.states(bag) == ["incomplete"]
    assert import_zone.states(bags[-1]) == ["imported"]
    import_zone.check([1, 2, 3, 4, 5])


def test_i03_renamed_doubled_and_foreign_volumes(import_zone: Any) -> None:
    medium = import_zone.carry(import_zone.bundle(1, 5), SMALL)
    other = import_zone.carry(import_zone.bundle(1, 2), SMALL, ledger=import_zone.ledger)
    data = bag_of(medium) / "data"
    (data / "v001.agv").rename(data / "zz.agv")
    (data / "copy.agv").write_bytes((data / "v002.agv").read_bytes())
    foreign = next((bag_of(other) / "data").iterdir()).read_bytes()
    (data / "foreign.agv").write_bytes(foreign)
    assert import_zone.states(medium) == ["imported"]
    import_zone.check([1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("manifest-sha256.txt", "E.SIG/TAG_FILE"),
        ("tagmanifest-sha256.txt", "E.SIG/TAG_FILE"),
        ("carrier.cbor", "E.SIG/TAG_FILE"),
    ],
)
def test_i04_an_edited_tag_file(import_zone: Any, name: str, code: str) -> None:
    medium = import_zone.medium(1, 3)
    path = bag_of(medium) / name
    path.write_bytes(path.read_bytes() + b" ")
    _refused(import_zone, medium, code)


def test_i04_no_signature(import_zone: Any) -> None:
    medium = import_zone.medium(1, 3)
    (bag_of(medium) / "carrier.sig").unlink()
    _refused(import_zone, medium, "E.SIZE/INCOMPLETE", "incomplete")


def test_i04_a_signature_by_an_unknown_key(import_zone: Any) -> None:
    (import_zone.root / "trust" / "exporter-z1.pub").unlink()
    pin_exporter(import_zone.root / "trust", "other", SigningKey(h(b"other")).public)
    _refused(import_zone, import_zone.medium(1, 3), "E.AUTH/SIGNER")


def test_i05_a_flipped_byte_in_a_volume(import_zone: Any) -> None:
    medium = import_zone.medium(1, 3)
    volume = next((bag_of(medium) / "data").iterdir())
    raw = bytearray(volume.read_bytes())
    raw[len(raw) // 2] ^= 1
    volume.write_bytes(raw)
    _refused(import_zone, medium, "E.SIG/VOLUME")


def test_i05_a_bundle_with_a_flipped_byte_in_a_sound_carrier(import_zone: Any) -> None:
    raw = import_zone.bundle(1, 3)
    ledger = import_zone.ledger.with_bundle(bridge_world.parts(raw)[0])
    at = raw.index(import_zone.world.events[1].payload) + 200
    flipped = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
    _refused(import_zone, import_zone.carry(flipped, ledger=ledger), "E.SIG/BUNDLE_ID")


@pytest.mark.parametrize("length", [0.1, 0.5, 0.99])
def test_i06_a_truncated_bundle_in_a_sound_carrier(import_zone: Any, length: float) -> None:
    raw = import_zone.bundle(1, 3)
    ledger = import_zone.ledger.with_bundle(bridge_world.parts(raw)[0])
    short = raw[: int(len(raw) * length)]
    entry = _refused(import_zone, import_zone.carry(short, ledger=ledger), "E.FORMAT/FRAMING")
    assert entry.offset is not None


def test_i07_trailing_bytes(import_zone: Any) -> None:
    raw = import_zone.bundle(1, 3)
    ledger = import_zone.ledger.with_bundle(bridge_world.parts(raw)[0])
    _refused(import_zone, import_zone.carry(raw + b"\x00", ledger=ledger), "E.FORMAT/FRAMING")


@pytest.mark.parametrize("item", [b"\x9f\xff", b"\xc1\x00", b"\xfa\x00\x00\x00\x00", b"\x18\x01"])
def test_i07_an_item_that_is_not_of_the_one_encoding(import_zone: Any, item: bytes) -> None:
    raw = import_zone.bundle(1, 3)
    header, events, proof = bridge_world.parts(raw)
    forged = bridge_world.reseal(header, [events[0], item, events[2]], proof)
    result = import_zone.run(
        import_zone.carry(forged, ledger=import_zone.ledger.with_bundle(header))
    )
    (outcome,) = result.outcomes
    assert outcome.state.value == "quarantined"
    assert outcome.code in ("E.FORMAT/FRAMING", "E.FORMAT/EVENT_FORMAT")
    import_zone.check([])


def test_i07_an_array_that_announces_more_than_there_is(import_zone: Any) -> None:
    header, events, proof = bridge_world.parts(import_zone.bundle(1, 3))
    forged = bridge_world.reseal(header, events, proof, count=2**32)
    medium = import_zone.carry(forged, ledger=import_zone.ledger.with_bundle(header))
    (outcome,) = import_zone.run(medium).outcomes
    assert outcome.state.value == "quarantined"
    import_zone.check([])


@pytest.mark.parametrize("by", [pytest.param(-1, id="less"), pytest.param(1, id="more")])
def test_i08_a_length_that_lies(import_zone: Any, by: int) -> None:
    medium = import_zone.carry(
        import_zone.bundle(1, 5), Packing(volume_bytes=1 << 20, compress=True)
    )
    bag = bag_of(medium)
    carrier = bridge_world.carrier_of(bag)
    assert carrier.compression is not None
    lying = replace(carrier.compression, plain_len=carrier.compression.plain_len + by)
    bridge_world.resign(bag, replace(carrier, compression=lying))
    _refused(import_zone, medium, "E.SIZE/UNPACKED_SIZE")


def test_i08_a_sealed_and_packed_carrier_goes_in_with_the_key_of_the_zone(import_zone: Any) -> None:
    private = h(b"zone key")
    sealing = Sealing(hpke_public_key(private), h(b"ephemeral"))
    medium = import_zone.carry(
        import_zone.bundle(1, 5), Packing(volume_bytes=1 << 20, compress=True), sealing
    )
    (outcome,) = import_zone.run(medium).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.AUTH/NO_KEY")
    (import_zone.root / "zone.key").write_text(private.hex() + "\n")
    import_zone.write_settings(importing='zone_keys = ["zone.key"]')
    assert import_zone.states(medium) == ["imported"]
    import_zone.check([1, 2, 3, 4, 5])


def test_i09_an_unknown_hub(import_zone: Any) -> None:
    for path in (import_zone.root / "trust").glob("hub-*"):
        path.unlink()
    _refused(import_zone, import_zone.medium(1, 3), "E.AUTH/HUB")


def test_i09_a_checkpoint_with_a_bad_signature(import_zone: Any) -> None:
    header, events, proof = bridge_world.parts(import_zone.bundle(1, 3))
    bad = replace(header.export_checkpoint, hub_sig=bytes(64))
    forged = bridge_world.reseal(replace(header, export_checkpoint=bad), events, proof)
    ledger = import_zone.ledger.with_bundle(bridge_world.parts(forged)[0])
    _refused(import_zone, import_zone.carry(forged, ledger=ledger), "E.SIG/CHECKPOINT")


def _swap_receipts(events: list[bytes], _proof: RangeProof) -> RangeProof | None:
    first, second = (BundleEvent.decode(event) for event in events[:2])
    events[0] = replace(first, receipt=second.receipt).encode()
    return None


def _drop(events: list[bytes], _proof: RangeProof) -> None:
    del events[1]


def _swap(events: list[bytes], _proof: RangeProof) -> None:
    events[1], events[2] = events[2], events[1]


def _before(_events: list[bytes], proof: RangeProof) -> RangeProof:
    return replace(proof, peaks_before=(bytes(32),))


def _after(_events: list[bytes], proof: RangeProof) -> RangeProof:
    return replace(proof, subtrees_after=(bytes(32),) * len(proof.subtrees_after))


@pytest.mark.parametrize(
    ("lie", "code", "position"),
    [
        pytest.param(_swap_receipts, "E.SEQ/PLACE", 0, id="a receipt of another event"),
        pytest.param(_drop, "E.SEQ/COUNT", None, id="a dropped event"),
        pytest.param(_swap, "E.SEQ/PLACE", 1, id="two events in each other's place"),
        pytest.param(_before, "E.SEQ/ROOT", 0, id="forged peaks before"),
        pytest.param(_after, "E.SEQ/PROOF", 3, id="forged subtrees after"),
    ],
)
def test_i10_events_that_are_not_those_of_the_log(
    import_zone: Any,
    lie: Callable[..., RangeProof | None],
    code: str,
    position: int | None,
) -> None:
    header, events, raw = bridge_world.parts(import_zone.bundle(2, 5, 7))
    proof = RangeProof.decode(raw)
    proof = lie(events, proof) or proof
    forged = bridge_world.reseal(header, events, proof.encode())
    ledger = import_zone.ledger.with_bundle(_header(forged))
    entry = _refused(import_zone, import_zone.carry(forged, ledger=ledger), code)
    assert entry.position == position
    claimed = (entry.bundle_id, entry.stream, entry.from_seq, entry.to_seq)
    assert claimed == (_header(forged).bundle_id, import_zone.world.stream, 2, 5)
    assert entry.is_claimed


def _header(raw: bytes) -> Header:
    return Header.decode(raw[1 : cbor.skip(raw, 1)])
