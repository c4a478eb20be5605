"""Writing to a medium that fails: at any operation, the carrier is whole or says that it is not."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.format import Packing
from bridge.carrier.medium import BadMedium, write_medium
from bridge.carrier.writer import StagedCarrier
from bridge.exporter.deliver import Media, deliver
from support import mount_table
from support.bridge import bridge_world, power_losses
from veen.errors import VeenError
from veen.system.durable import NoSpace, SyncFailed

PACKING = Packing(volume_bytes=1500, parity=1)
OPERATIONS = ("pwrite", "fdatasync", "fsync", "mkdir", "preadv")


class Pulled(Exception):
    """The medium is gone, or the process."""


@pytest.fixture
def bag(carrier_factory: Any, grown_world: Any) -> Path:
    (result,) = carrier_factory.carry(grown_world.bundle(2, 4), PACKING)
    return Path(result)


def files_of(bag: Path) -> dict[str, bytes]:
    result = [path for path in bag.rglob("*") if path.is_file()]
    return {str(path.relative_to(bag)): path.read_bytes() for path in result}


def test_what_lies_on_a_medium_is_what_was_staged(carrier_factory: Any, grown_world: Any) -> None:
    medium = carrier_factory.new()
    bags = carrier_factory.carry(
        grown_world.bundle(2, 8), Packing(volume_bytes=900, volumes_per_bag=2, parity=1)
    )
    for bag in bags:
        assert files_of(write_medium(bag, medium)) == files_of(bag)
    assert carrier_factory.both(sorted((medium / "agb0").iterdir())) == "valid"


def test_nothing_on_a_medium_is_overwritten(carrier_factory: Any, bag: Path) -> None:
    medium = carrier_factory.new()
    written = write_medium(bag, medium)
    (written / "carrier.sig").write_bytes(b"mine")
    with pytest.raises(BadMedium):
        write_medium(bag, medium)
    assert (written / "carrier.sig").read_bytes() == b"mine"


def test_a_medium_without_room_is_left_as_it_is(
    carrier_factory: Any, bag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium = carrier_factory.new()
    result = os.statvfs(medium)
    full = os.statvfs_result([*result[:4], 10, *result[5:]])
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(BadMedium):
        write_medium(bag, medium)
    assert list(medium.iterdir()) == []


def _claims(patch: pytest.MonkeyPatch, medium: Path, free: int, flag: int = 0) -> None:
    result = os.statvfs(medium)
    detail = [1, 1, result[2], free, free, *result[5:8], flag, result[9]]
    patch.setattr(os, "statvfs", lambda _: os.statvfs_result(detail))


def test_a_set_that_one_medium_cannot_take_is_refused_before_its_first_byte(
    carrier_factory: Any, grown_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = carrier_factory.carry(
        grown_world.bundle(2, 8), Packing(volume_bytes=900, volumes_per_bag=2)
    )
    staged, media = (
        StagedCarrier(bridge_world.carrier_of(bags[0]), tuple(bags)),
        (carrier_factory.new(), carrier_factory.new()),
    )
    assert len(bags) > 2
    with monkeypatch.context() as patched:
        _claims(patched, media[0], 2 << 20)
        with pytest.raises(BadMedium, match=r"expected \d+ bytes free, got 2097152"):
            deliver(staged, Media(roots=media, medium_id="discs"))
    assert [list(item.iterdir()) for item in media] == [[], []]
    assert len(deliver(staged, Media(roots=media, medium_id="discs"))) == len(bags)
    with monkeypatch.context() as patched:
        # What lies there already needs no room.
        _claims(patched, media[0], 0)
        assert len(deliver(staged, Media(roots=media, medium_id="discs"))) == len(bags)


def test_a_medium_that_is_read_only_or_takes_no_large_files_is_named(
    bag: Path, carrier_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium = carrier_factory.new()
    with monkeypatch.context() as patched:
        _claims(patched, medium, 1 << 30, os.ST_RDONLY)
        with pytest.raises(BadMedium, match="read-only"):
            write_medium(bag, medium)
    volume = next((bag / "data").iterdir())
    os.truncate(volume, 1 << 32)
    with monkeypatch.context() as patched:
        _claims(patched, medium, 1 << 34)
        mount_table.mount_as(patched, medium, "vfat")
        with pytest.raises(BadMedium, match=rf"files may have {(1 << 32) - 1} at most.*fat32"):
            write_medium(bag, medium)
    assert list(medium.iterdir()) == []


class Counter:
    """Operations of the file system, counted; the chosen one fails."""

    def __init__(self, patch: pytest.MonkeyPatch, fail_at: int, failure: Exception) -> None:
        self.count = 0
        for name in OPERATIONS:
            patch.setattr(os, name, self._counted(getattr(os, name), fail_at, failure))

    def _counted(
        self, real: Callable[..., Any], fail_at: int, failure: Exception
    ) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            self.count += 1
            if self.count == fail_at:
                raise failure
            return real(*args, **more)

        return counted


def write_failing(bag: Path, medium: Path, at: int, failure: Exception) -> tuple[int, Any]:
    """How many operations were begun, and what came of it."""
    with pytest.MonkeyPatch.context() as patch:
        counter = Counter(patch, at, failure)
        try:
            return counter.count, write_medium(bag, medium)
        except (VeenError, OSError, Pulled) as error:
            return counter.count, error


@pytest.mark.parametrize(
    "failure",
    [Pulled(), OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "bad")],
    ids=["killed", "full", "broken"],
)
def test_cut_anywhere_it_is_whole_or_not_finished(
    carrier_factory: Any, bag: Path, failure: Exception
) -> None:
    due, at = files_of(bag), 0
    while True:
        at, medium = at + 1, carrier_factory.new()
        _, result = write_failing(bag, medium, at, failure)
        if not isinstance(result, Exception):
            break
        written = medium / "agb0" / bag.name
        value = files_of(written) if written.exists() else {}
        # Whole by luck is whole: all its bytes are there, only the last sync was not confirmed.
        if value != due:
            assert not carrier_factory.check([written]).ok
            if "carrier.sig" in value:
                assert value["carrier.sig"] != due["carrier.sig"]
    assert at > 30
    assert files_of(result) == due


@pytest.mark.parametrize("how", ["dropped", "torn"])
def test_x05_a_medium_that_loses_what_was_not_synced_is_whole_or_not_finished(
    carrier_factory: Any, bag: Path, how: str
) -> None:
    due, at = files_of(bag), 0
    while True:
        at, medium = at + 1, carrier_factory.new()
        lost = power_losses.Losses(str(medium))
        with pytest.MonkeyPatch.context() as patch:
            lost.install(patch.setattr)
            counter = Counter(patch, at, Pulled())
            try:
                result = write_medium(bag, medium)
            except Pulled:
                result = None
            is_over = counter.count < at
        lost.lose(how)
        written = medium / "agb0" / bag.name
        value = files_of(written) if written.exists() else {}
        assert value == due or not carrier_factory.check([written]).ok
        if is_over:
            break
    assert at > 30
    # Whoever was told that it is written can take the medium away.
    assert result is not None
    assert value == due


def test_a_sync_that_fails_is_not_tried_again(carrier_factory: Any, bag: Path) -> None:
    syncs = []

    def fail(fd: int) -> None:
        syncs.append(fd)
        raise OSError(errno.EIO, "bad")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(SyncFailed):
            write_medium(bag, carrier_factory.new())
    assert len(syncs) == 1


class Libc:
    """The library of the system, whose sync of a file system ends with an error."""

    def __init__(self, error: int) -> None:
        self.asked = 0
        self._error = error

    def syncfs(self, _handle: int) -> int:
        self.asked += 1
        ctypes.set_errno(self._error)
        return -1


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_sync_of_the_whole_file_system_that_fails_is_final(
    carrier_factory: Any, bag: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    libc = Libc(error)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: libc)
    with pytest.raises(SyncFailed, match=r"sync of the file system of .* failed"):
        write_medium(bag, carrier_factory.new())
    assert libc.asked == 1


@pytest.mark.parametrize("libc", [Libc(errno.ENOSYS), object()], ids=["refused", "absent"])
def test_a_system_without_a_sync_of_file_systems_has_synced_every_file(
    carrier_factory: Any, bag: Path, monkeypatch: pytest.MonkeyPatch, libc: object
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: libc)
    assert files_of(write_medium(bag, carrier_factory.new())) == files_of(bag)


def test_a_full_medium_is_reported_as_such(carrier_factory: Any, bag: Path) -> None:
    _, result = write_failing(bag, carrier_factory.new(), 4, OSError(errno.ENOSPC, "full"))
    assert isinstance(result, NoSpace)


def test_a_bit_that_turns_while_it_is_written_is_found(carrier_factory: Any, bag: Path) -> None:
    medium, real = carrier_factory.new(), os.pwrite
    turned = iter([b"\x01"])

    def turn(fd: int, data: bytes, at: int) -> int:
        bit = next(turned, None)
        return real(fd, bytes(data)[:-1] + (bit or bytes(data)[-1:]), at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", turn)
        with pytest.raises(BadMedium):
            write_medium(bag, medium)
    assert not list(medium.rglob("carrier.sig"))
