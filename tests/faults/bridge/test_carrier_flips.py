"""No byte of any file of a carrier can be changed or left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.bag import CARRIER, SIGNATURE, TAGGED, TAGMANIFEST, tagmanifest
from bridge.carrier.format import HEADER_BYTES, SIGNATURE_BYTES, CarrierSig
from bridge.carrier.verify import VerifyContext
from bridge.errors import CarrierFault, CarrierRefused, Level
from bridge.importer.examine import examined
from support.bridge import bridge_world

VOLUME = "data/v001.agv"
IDENTIFIED = 42
"""The bytes of a volume's header that say which volume it is: magic, set and index."""
Change = Callable[[bytes, int], bytes]


@pytest.fixture
def bag(carrier_factory: Any) -> Path:
    (result,) = carrier_factory.carry(bridge_world.World(body_bytes=1).grow(1).bundle(1, 1))
    return Path(result)


def flip(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :]


def cut(raw: bytes, at: int) -> bytes:
    return raw[:at]


def verdicts(carrier_factory: Any, bag: Path, name: str, change: Change) -> list[str]:
    """What both verifiers say of a change at every byte of a file, which is put back afterwards."""
    path = bag / name
    raw = path.read_bytes()
    result = []
    for at in range(len(raw)):
        path.write_bytes(change(raw, at))
        result.append(carrier_factory.both([bag]))
    path.write_bytes(raw)
    assert carrier_factory.both([bag]) == "valid"
    return result


@pytest.mark.parametrize("name", [*TAGGED, TAGMANIFEST])
@pytest.mark.parametrize("change", [flip, cut])
def test_refuses_a_changed_tag_file(
    carrier_factory: Any, bag: Path, name: str, change: Change
) -> None:
    assert set(verdicts(carrier_factory, bag, name, change)) == {"E.SIG/TAG_FILE"}


def test_refuses_a_changed_signature(carrier_factory: Any, bag: Path) -> None:
    result = set(verdicts(carrier_factory, bag, SIGNATURE, flip))
    assert result == {"E.SIG/CARRIER_SIG", "E.FORMAT/CARRIER_FORMAT"}


def test_x02_a_signature_that_is_cut_short_was_not_finished(
    carrier_factory: Any, bag: Path
) -> None:
    assert (bag / SIGNATURE).stat().st_size == SIGNATURE_BYTES
    assert set(verdicts(carrier_factory, bag, SIGNATURE, cut)) == {"E.SIZE/INCOMPLETE"}


@pytest.mark.parametrize("name", [*TAGGED, TAGMANIFEST, VOLUME])
@pytest.mark.parametrize("level", Level)
def test_x02_whatever_is_cut_a_carrier_without_signature_was_not_finished(
    carrier_factory: Any, bag: Path, name: str, level: Level
) -> None:
    (bag / SIGNATURE).unlink()
    for size in (0, 1, (bag / name).stat().st_size - 1):
        with (bag / name).open("r+b") as file:
            file.truncate(size)
        report = carrier_factory.check([bag], level)
        assert report.verdict == carrier_factory.standalone([bag]) == "E.SIZE/INCOMPLETE"
        assert "carrier.sig is missing: it was not finished" in str(report.refusal)
    means = VerifyContext(trust=carrier_factory.trust, scratch=carrier_factory.root)
    with pytest.raises(CarrierRefused) as refused, examined([bag], means):
        pass
    assert refused.value.fault is CarrierFault.INCOMPLETE


def test_refuses_a_changed_volume(carrier_factory: Any, bag: Path) -> None:
    result = verdicts(carrier_factory, bag, VOLUME, flip)
    assert set(result[:IDENTIFIED]) == {"E.SIZE/INCOMPLETE"}
    assert set(result[IDENTIFIED:]) == {"E.SIG/VOLUME"}
    assert len(result) > HEADER_BYTES


def test_refuses_a_volume_that_is_cut_short(carrier_factory: Any, bag: Path) -> None:
    assert set(verdicts(carrier_factory, bag, VOLUME, cut)) == {"E.SIZE/INCOMPLETE"}


@pytest.mark.parametrize("name", [*TAGGED, TAGMANIFEST, SIGNATURE, VOLUME])
def test_refuses_a_missing_file(carrier_factory: Any, bag: Path, name: str) -> None:
    (bag / name).unlink()
    assert carrier_factory.both([bag]) == "E.SIZE/INCOMPLETE"
    assert name in str(carrier_factory.check([bag]).refusal)


@pytest.mark.parametrize("name", [*TAGGED, TAGMANIFEST, SIGNATURE])
def test_never_follows_a_link(carrier_factory: Any, bag: Path, name: str) -> None:
    (bag / name).rename(bag.parent / "elsewhere")
    (bag / name).symlink_to(bag.parent / "elsewhere")
    assert carrier_factory.both([bag]) == "E.FORMAT/MEDIUM"


def test_a_volume_that_is_a_link_is_not_there(carrier_factory: Any, bag: Path) -> None:
    (bag / VOLUME).rename(bag.parent / "elsewhere")
    (bag / VOLUME).symlink_to(bag.parent / "elsewhere")
    assert carrier_factory.both([bag]) == "E.SIZE/INCOMPLETE"


def test_refuses_too_many_files(carrier_factory: Any, bag: Path) -> None:
    for number in range(1030):
        (bag / "data" / f"x{number}").touch()
    assert carrier_factory.both([bag]) == "E.FORMAT/MEDIUM"


def test_refuses_a_tag_file_without_end(carrier_factory: Any, bag: Path) -> None:
    with (bag / "LABEL.txt").open("r+b") as file:
        file.truncate(1 << 40)
    assert carrier_factory.both([bag]) == "E.FORMAT/MEDIUM"


@pytest.mark.parametrize(
    "names",
    [("a", "A"), ("\u00e9", "e\u0301"), ("\u00c9", "e\u0301")],
    ids=["case", "form", "both"],
)
@pytest.mark.parametrize("folder", [".", "data"])
def test_refuses_names_that_another_file_system_takes_for_one(
    carrier_factory: Any, bag: Path, names: tuple[str, str], folder: str
) -> None:
    for name in names:
        (bag / folder / name).touch()
    assert carrier_factory.both([bag]) == "E.FORMAT/MEDIUM"


def test_says_what_is_needed_to_read_a_newer_format(carrier_factory: Any, bag: Path) -> None:
    raw = (bag / CARRIER).read_bytes()
    # A later version has a field that is not known here.
    newer = bytes([raw[0] + 1]) + b"\x01\x02" + raw[3:] + b"\x0c\x00"
    tags = {name: (bag / name).read_bytes() for name in TAGGED} | {CARRIER: newer}
    (bag / CARRIER).write_bytes(newer)
    (bag / TAGMANIFEST).write_bytes(tagmanifest(tags))
    (bag / SIGNATURE).write_bytes(CarrierSig.of(bridge_world.EXPORTER, tagmanifest(tags)).encode())
    assert carrier_factory.both([bag]) == "E.FORMAT/CARRIER_VERSION"
    for level in Level:
        assert "needs >= v2" in str(carrier_factory.check([bag], level).refusal)
