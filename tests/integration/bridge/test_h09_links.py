"""H09: no link, mount or device on a medium leads an export, a probe or a check away from it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.directory import BagPath, Directory
from bridge.carrier.format import Packing
from bridge.carrier.medium import BadMedium, carriers, write_medium
from bridge.carrier.probe import FOLDER as PROBE
from bridge.carrier.probe import probe
from bridge.carrier.writer import StagedCarrier
from bridge.errors import CarrierFault, Level
from bridge.exporter.deliver import Media, deliver
from support.bridge import bridge_world


@pytest.fixture
def bag(carrier_factory: Any, grown_world: Any) -> Path:
    (result,) = carrier_factory.carry(grown_world.bundle(2, 4), Packing(volume_bytes=1500))
    return Path(result)


@pytest.fixture
def elsewhere(carrier_factory: Any) -> Path:
    """A directory of this machine that whoever carries the medium would like to have written."""
    result: Path = carrier_factory.new()
    (result / "mine").write_bytes(b"mine")
    return result


def delivered(bag: Path, medium: Path, **more: Any) -> Any:
    staged = StagedCarrier(bridge_world.carrier_of(bag), (bag,))
    return deliver(staged, Media(roots=(medium,), medium_id="stick", **more))


def untouched(folder: Path) -> bool:
    return [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("mine", b"mine")]


def test_h09_an_export_does_not_follow_a_link_at_agb0(
    carrier_factory: Any, bag: Path, elsewhere: Path
) -> None:
    medium = carrier_factory.new()
    (medium / "agb0").symlink_to(elsewhere)
    with pytest.raises(BadMedium, match=r"agb0.*symbolic link.*use another medium"):
        delivered(bag, medium)
    with pytest.raises(BadMedium, match=r"agb0.*use another medium"):
        write_medium(bag, medium)
    assert untouched(elsewhere)


def test_h09_an_export_does_not_follow_a_link_at_the_bag(
    carrier_factory: Any, bag: Path, elsewhere: Path
) -> None:
    medium = carrier_factory.new()
    (medium / "agb0").mkdir()
    (medium / "agb0" / bag.name).symlink_to(elsewhere)
    for discards in (False, True):
        with pytest.raises(BadMedium, match="symbolic link"):
            delivered(bag, medium, discard_unfinished=discards)
    assert untouched(elsewhere)


@pytest.mark.parametrize("name", ["data", "carrier.sig", "tagmanifest-sha256.txt", "LABEL.txt"])
def test_h09_the_read_back_of_an_earlier_run_does_not_follow_a_link(
    carrier_factory: Any, bag: Path, name: str
) -> None:
    medium = carrier_factory.new()
    (written,) = delivered(bag, medium)
    assert delivered(bag, medium) == (written,)
    (written / name).rename(medium / "moved")
    (written / name).symlink_to(medium / "moved")
    with pytest.raises(BadMedium, match="symbolic link"):
        delivered(bag, medium)


def test_h09_a_link_that_appears_while_it_is_written_leads_nowhere(
    carrier_factory: Any, bag: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories are held open: whoever swaps one for a link is not followed."""
    medium, real = carrier_factory.new(), os.fdatasync
    swapped: list[Any] = []

    def swap(fd: int) -> None:
        real(fd)
        if not swapped:
            swapped.append((medium / "agb0").rename(medium / "away"))
            (medium / "agb0").symlink_to(elsewhere)

    monkeypatch.setattr(os, "fdatasync", swap)
    write_medium(bag, medium)
    assert untouched(elsewhere)
    assert (medium / "away" / bag.name / "carrier.sig").exists()


def test_h09_a_probe_does_not_follow_a_link(
    carrier_factory: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium = carrier_factory.new()
    result = os.statvfs(medium)
    statvfs_result = os.statvfs_result(
        [1, 1, result[2], 12 << 20, 12 << 20, *result[5:8], 0, result[9]]
    )
    monkeypatch.setattr(os, "statvfs", lambda _: statvfs_result)
    (medium / PROBE).symlink_to(elsewhere)
    with pytest.raises(BadMedium, match=r"agb0-probe: expected no entry, got a link"):
        probe(medium, bytes(32))
    assert untouched(elsewhere)
    assert (medium / PROBE).is_symlink()


@pytest.mark.parametrize("at", ["agb0", "bag", "data", "carrier.sig", "volume"])
def test_h09_a_check_does_not_follow_a_link(carrier_factory: Any, bag: Path, at: str) -> None:
    medium, away = carrier_factory.new(), carrier_factory.new()
    written = write_medium(bag, medium)
    assert carrier_factory.check(carriers([medium])[0]).ok
    (volume,) = list((written / "data").iterdir())[:1]
    places = {"agb0": written.parent, "bag": written, "volume": volume}
    place = places.get(at, written / at)
    place.rename(away / "moved")
    place.symlink_to(away / "moved")
    (result,) = carriers([medium])
    fault = carrier_factory.check(result).refusal.fault
    # A volume that is a link is no volume; everything else is refused as what it is.
    is_lost = at in ("volume", "data")
    assert fault is (CarrierFault.INCOMPLETE if is_lost else CarrierFault.MEDIUM)
    (given,) = carriers([medium / "agb0" / bag.name])
    assert not carrier_factory.check(given).ok


def test_h08_a_medium_that_fails_late_refuses_the_carrier_and_ends_nothing_else(
    carrier_factory: Any, bag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hashes hold, and a sector goes bad before the content is read."""
    reads, real = [0, 0], os.pread

    def failing(fd: int, size: int, at: int) -> bytes:
        reads[0] += 1
        if 0 < reads[1] < reads[0]:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", failing)
    assert carrier_factory.check([bag], Level.INTACT).ok
    reads[0], reads[1] = 0, reads[0]
    report = carrier_factory.check([bag])
    assert report.refusal.fault is CarrierFault.MEDIUM
    assert "cannot be read: Input/output error" in str(report.refusal)


def test_h09_another_device_below_a_medium_is_not_entered() -> None:
    """Of every Linux machine ``/proc`` is one."""
    with (
        Directory.root(Path("/")) as root,
        pytest.raises(OSError, match="another device") as detail,
    ):
        root.directory("proc")
    assert detail.value.errno == errno.EXDEV
    with Directory.root(Path("/proc")) as root, pytest.raises(OSError, match="symbolic link"):
        root.directory("self")
    with pytest.raises(OSError, match="another device"):
        BagPath(Path("/"), ("proc",)).open()


MOUNTED = """
import subprocess, sys
from pathlib import Path
from bridge.carrier.medium import BadMedium, write_medium
from bridge.carrier.medium import carriers
from bridge.carrier.bag import Bag
from bridge.errors import CarrierRefused
bag, medium = map(Path, sys.argv[1:])
(medium / "agb0").mkdir()
subprocess.run(["mount", "-t", "tmpfs", "none", str(medium / "agb0")], check=True)
try:
    write_medium(bag, medium)
except BadMedium as error:
    assert "another device" in str(error), error
else:
    raise SystemExit("it was written to another device")
assert not list((medium / "agb0").iterdir())
subprocess.run(["cp", "-r", str(bag), str(medium / "agb0")], check=True)
((found,),) = carriers([medium])
try:
    Bag(found)
except CarrierRefused as error:
    assert "another device" in str(error), error
else:
    raise SystemExit("it was read from another device")
"""


def test_h09_a_mount_at_agb0_is_neither_written_nor_read(carrier_factory: Any, bag: Path) -> None:
    alone = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace can be made here")
    script = carrier_factory.root / "mounted.py"
    script.write_text(MOUNTED)
    command = [*alone, sys.executable, str(script), str(bag), str(carrier_factory.new())]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr[-2000:]
