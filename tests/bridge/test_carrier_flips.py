"""No byte of any file of a carrier can be changed or left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.bag import SIGNATURE, TAGGED, TAGMANIFEST
from bridge.carrier.volume import HEADER_BYTES

VOLUME = "data/v001.agv"
IDENTIFIED = 42
"""The bytes of a volume's header that say which volume it is: magic, set and index."""
Change = Callable[[bytes, int], bytes]


@pytest.fixture
def bag(yard: Any, world: Any) -> Path:
    (found,) = yard.carry(world.World().grow(3).bundle(1, 3))
    return Path(found)


def flip(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :]


def cut(raw: bytes, at: int) -> bytes:
    return raw[:at]


def verdicts(yard: Any, bag: Path, name: str, change: Change, step: int) -> dict[int, str]:
    """What both verifiers say of each change to one file, which is put back afterwards."""
    path = bag / name
    raw = path.read_bytes()
    # The start of a file and its end are changed byte by byte, in between some are left out.
    places = [at for at in range(len(raw)) if at < 200 or at % step == 0]
    found = {}
    for at in places:
        path.write_bytes(change(raw, at))
        found[at] = yard.both([bag])
    path.write_bytes(raw)
    assert yard.both([bag]) == "valid"
    return found


@pytest.mark.parametrize("name", [*TAGGED, TAGMANIFEST])
@pytest.mark.parametrize("change", [flip, cut])
def test_refuses_a_changed_tag_file(
    yard: Any, bag: Path, name: str, change: Change, long: bool
) -> None:
    found = verdicts(yard, bag, name, change, 1 if long else 5)
    assert set(found.values()) == {"E.SIG/TAG_FILE"}


def test_refuses_a_changed_signature(yard: Any, bag: Path) -> None:
    found = verdicts(yard, bag, SIGNATURE, flip, 1)
    assert set(found.values()) == {"E.SIG/CARRIER_SIG", "E.FORMAT/CARRIER_FORMAT"}
    found = verdicts(yard, bag, SIGNATURE, cut, 1)
    assert set(found.values()) == {"E.FORMAT/CARRIER_FORMAT"}


def test_refuses_a_changed_volume(yard: Any, bag: Path, long: bool) -> None:
    found = verdicts(yard, bag, VOLUME, flip, 1 if long else 13)
    assert {found[at] for at in range(IDENTIFIED)} == {"E.SIZE/INCOMPLETE"}
    assert {found[at] for at in found if at >= IDENTIFIED} == {"E.SIG/VOLUME"}
    assert max(found) > HEADER_BYTES


def test_refuses_a_volume_that_is_cut_short(yard: Any, bag: Path, long: bool) -> None:
    found = verdicts(yard, bag, VOLUME, cut, 1 if long else 13)
    assert set(found.values()) == {"E.SIZE/INCOMPLETE"}


@pytest.mark.parametrize("name", [*TAGGED, TAGMANIFEST, SIGNATURE, VOLUME])
def test_refuses_a_missing_file(yard: Any, bag: Path, name: str) -> None:
    (bag / name).unlink()
    assert yard.both([bag]) == "E.SIZE/INCOMPLETE"
    assert name in str(yard.check([bag]).refusal)


@pytest.mark.parametrize("name", [*TAGGED, TAGMANIFEST, SIGNATURE])
def test_never_follows_a_link(yard: Any, bag: Path, name: str) -> None:
    (bag / name).rename(bag.parent / "elsewhere")
    (bag / name).symlink_to(bag.parent / "elsewhere")
    assert yard.both([bag]) == "E.FORMAT/MEDIUM"


def test_a_volume_that_is_a_link_is_not_there(yard: Any, bag: Path) -> None:
    (bag / VOLUME).rename(bag.parent / "elsewhere")
    (bag / VOLUME).symlink_to(bag.parent / "elsewhere")
    assert yard.both([bag]) == "E.SIZE/INCOMPLETE"


def test_refuses_too_many_files(yard: Any, bag: Path) -> None:
    for number in range(1030):
        (bag / "data" / f"x{number}").touch()
    assert yard.both([bag]) == "E.FORMAT/MEDIUM"


def test_refuses_a_tag_file_without_end(yard: Any, bag: Path) -> None:
    with (bag / "LABEL.txt").open("r+b") as file:
        file.truncate(1 << 40)
    assert yard.both([bag]) == "E.FORMAT/MEDIUM"
