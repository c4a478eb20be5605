"""A carrier that is packed or sealed: opened by its zone alone, and never further than signed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bridge.carrier.codec import Sealing, decompress_bytes, verify_ratio
from bridge.carrier.format import Compression, Packing
from bridge.errors import CarrierFault, CarrierRefused, Level
from support.bridge import bridge_world
from veen.crypto import hpke_public_key
from veen.digest import h

PRIVATE = h(b"zone 2")
SEALING = Sealing(hpke_public_key(PRIVATE), h(b"fresh"))


@pytest.fixture(scope="session")
def raw(grown_world: Any) -> bytes:
    bundle: bytes = grown_world.bundle(2, 8)
    return bundle


@pytest.mark.parametrize(("more", "due"), [(1, "UNPACKED_SIZE"), (-1, "UNPACKED_SIZE")])
def test_refuses_a_content_of_another_size_than_was_signed(
    carrier_factory: Any, raw: bytes, more: int, due: str
) -> None:
    (bag,) = carrier_factory.carry(raw, Packing(volume_bytes=1 << 20, compress=True))
    carrier = bridge_world.carrier_of(bag)
    lied = Compression(alg="zstd", plain_len=len(raw) + more)
    bridge_world.resign(bag, replace(carrier, compression=lied))
    assert carrier_factory.check([bag]).verdict == f"E.SIZE/{due}"


def test_refuses_a_bomb_before_a_byte_is_inflated() -> None:
    with pytest.raises(CarrierRefused) as refusal:
        verify_ratio(1000, 1 << 30)
    assert refusal.value.fault is CarrierFault.UNPACKED_SIZE


def test_a_bomb_goes_off_no_further_than_the_size_that_was_signed() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 28))
    taken: list[int] = []
    with pytest.raises(CarrierRefused):
        taken.extend(len(block) for block in decompress_bytes([bomb], 1 << 20))
    assert sum(taken) <= 1 << 20


def test_refuses_a_window_that_is_too_large() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(19, window_log=27)
    wide = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    content = os.urandom(1 << 12)
    raw = wide.compress(content) + wide.flush()
    with pytest.raises(CarrierRefused) as refusal:
        list(decompress_bytes([raw], len(content)))
    assert refusal.value.fault is CarrierFault.COMPRESSION


def test_a_sealed_carrier_opens_for_its_zone_alone(carrier_factory: Any, raw: bytes) -> None:
    bags = carrier_factory.carry(raw, sealing=SEALING)
    assert carrier_factory.check(bags).verdict == "E.AUTH/NO_KEY"
    assert carrier_factory.check(bags, privates=[h(b"zone 3")]).verdict == "E.AUTH/NO_KEY"
    assert carrier_factory.check(bags, Level.INTACT).verdict == "intact"
    report = carrier_factory.check(bags, privates=[h(b"zone 3"), PRIVATE])
    assert report.verdict == "valid"


def test_a_sealed_carrier_tells_nothing_of_its_content(carrier_factory: Any, raw: bytes) -> None:
    bundle_id = bridge_world.bundle_id_of(raw)
    assert bundle_id is not None
    for bag in carrier_factory.carry(raw, Packing(volume_bytes=900), SEALING):
        files = [path for path in bag.rglob("*") if path.is_file()]
        everything = b"".join(path.read_bytes() for path in files) + bag.name.encode()
        for secret in (bundle_id, bundle_id.hex()[:12].encode(), bridge_world.STREAM.encode()):
            assert secret not in everything


@pytest.mark.parametrize("change", ["flip", "drop", "swap"])
def test_refuses_sealed_chunks_that_an_exporter_did_not_make(
    carrier_factory: Any, change: str
) -> None:
    world = bridge_world.World(body_bytes=40_000).grow(5)
    bags = carrier_factory.carry(world.bundle(1, 5), sealing=SEALING)
    stored = bytearray((bags[0] / "data" / "v001.agv").read_bytes()[86:])
    size = (1 << 16) + 16
    if change == "flip":
        stored[100] ^= 1
    elif change == "drop":
        del stored[-(len(stored) % size) :]
    else:
        stored[:size], stored[size : 2 * size] = stored[size : 2 * size], stored[:size]
    (bag,) = repacked(carrier_factory, bags[0], bytes(stored))
    assert carrier_factory.check([bag], privates=[PRIVATE]).verdict == "E.SIG/SEALED"


def repacked(carrier_factory: Any, bag: Path, stored: bytes) -> list[Path]:
    """A bag whose one volume holds other bytes, signed anew."""
    header = (bag / "data" / "v001.agv").read_bytes()[:86]
    raw = header[:46] + len(stored).to_bytes(8, "big") + h(stored) + stored
    (bag / "data" / "v001.agv").write_bytes(raw)
    carrier = bridge_world.carrier_of(bag)
    volume = replace(carrier.volumes[0], size=len(raw), file_hash=h(raw))
    bridge_world.resign(bag, replace(carrier, stored_len=len(stored), volumes=(volume,)))
    return [bag]


def test_the_same_content_is_sealed_to_the_same_bytes_and_other_content_with_another_key(
    carrier_factory: Any, grown_world: Any, raw: bytes
) -> None:
    sealing = Sealing.by(bridge_world.EXPORTER, hpke_public_key(PRIVATE))
    contents = (raw, raw, grown_world.bundle(2, 7))
    bags = [
        carrier_factory.carry(content, Packing(volume_bytes=1 << 20, compress=True), sealing)[0]
        for content in contents
    ]
    sealed = [bridge_world.carrier_of(bag).encryption for bag in bags]
    keys = [encryption.enc for encryption in sealed if encryption is not None]
    assert len(keys) == len(bags)
    volumes = [(bag / "data" / "v001.agv").read_bytes() for bag in bags]
    assert (keys[0], volumes[0], bags[0].name) == (keys[1], volumes[1], bags[1].name)
    assert keys[0] != keys[2]
    assert Sealing.by(bridge_world.CLIENT, sealing.recipient) != sealing
    assert Sealing.by(bridge_world.EXPORTER, h(b"another zone")).secret != sealing.secret
    assert carrier_factory.check([bags[0]], privates=[PRIVATE]).ok
