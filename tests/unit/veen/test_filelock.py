"""File locks: shared and exclusive, waiting and not, and the holder that a lock file names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from veen.errors import VeenError
from veen.system.filelock import HolderLock, LockHeld, LockWait, is_locked, locked, locked_existing


class Busy(VeenError):
    """The caller's own error."""


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def test_an_exclusive_lock_excludes_all_others(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path):
        with pytest.raises(Busy), locked(path, busy=Busy()):
            pass
        with pytest.raises(Busy), locked(path, shared=True, busy=Busy()):
            pass
    with locked(path, busy=Busy()):
        pass


def test_shared_locks_exclude_only_an_exclusive_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, shared=True):
        with locked(path, shared=True, busy=Busy()):
            pass
        with pytest.raises(Busy), locked(path, busy=Busy()):
            pass


def test_an_error_within_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock"):
        raise ZeroDivisionError
    assert not is_locked(tmp_path / "lock")


def test_a_lock_file_is_private(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_directory_is_locked_without_a_lock_file(tmp_path: Path) -> None:
    with locked_existing(tmp_path):
        assert not list(tmp_path.iterdir())


def test_only_an_existing_file_is_locked_to_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked_existing(tmp_path / "lock", shared=True):
        pass
    assert not (tmp_path / "lock").exists()


def test_tells_whether_a_lock_is_held_and_creates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)


def test_a_held_lock_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = HolderLock(_opened(path))
    lock.write_holder("process 7")
    with pytest.raises(LockHeld) as caught:
        HolderLock(_opened(path))
    assert caught.value.holder == "process 7"
    lock.release()
    assert path.read_bytes() == b""


def test_the_last_holder_is_known_if_it_did_not_release(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = HolderLock(_opened(path))
    lock.write_holder("process 7")
    lock.abandon()
    again = HolderLock(_opened(path))
    assert again.last_holder == "process 7"
    again.release()
    assert HolderLock(_opened(path)).last_holder == ""


@pytest.mark.parametrize("seconds", [0, 0.3])
def test_waits_as_long_as_it_may_and_not_longer(tmp_path: Path, seconds: float) -> None:
    slept: list[float] = []
    with locked(tmp_path / "lock"), pytest.raises(LockHeld):
        HolderLock(_opened(tmp_path / "lock"), LockWait(seconds, slept.append))
    assert sum(slept) == pytest.approx(seconds)


def test_a_lock_that_is_released_meanwhile_is_acquired(tmp_path: Path) -> None:
    first = HolderLock(_opened(tmp_path / "lock"))
    release: Callable[[float], None] = lambda _: first.release()  # noqa: E731
    HolderLock(_opened(tmp_path / "lock"), LockWait(1, release)).release()
