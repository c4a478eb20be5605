"""The probe of a medium: one that has less room than it claims is found out, and left as it was."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.medium import BadMedium
from bridge.carrier.probe import FOLDER, MARK_BYTES, probe
from veen.digest import h

NONCE = h(b"nonce")
CLAIMED = 12 << 20


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Path]:
    """A directory whose file system claims to have 12 MiB free."""
    result = os.statvfs(tmp_path)
    detail = [1, 1, result[2], CLAIMED, CLAIMED, *result[5:8], 0, result[9]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: os.statvfs_result(detail))
        yield tmp_path


class Forged:
    """Marks beyond what is really there are written over those at the beginning, or lost."""

    def __init__(self, patch: pytest.MonkeyPatch, real_marks: int, is_lost: bool) -> None:
        self._places: list[tuple[str, int]] = []
        self._real, self._marks, self._is_lost = os.pwrite, real_marks, is_lost
        patch.setattr(os, "pwrite", self._pwrite)

    def _pwrite(self, handle: int, data: Any, at: int) -> int:
        self._places.append((str(Path(f"/proc/self/fd/{handle}").readlink()), at))
        number = len(self._places) - 1
        if number < self._marks:
            return self._real(handle, data, at)
        self._real(handle, bytes(len(data)), at)
        if not self._is_lost:
            path, place = self._places[number % self._marks]
            over = os.open(path, os.O_WRONLY)
            self._real(over, data, place)
            os.close(over)
        return len(data)


def test_a_medium_with_all_its_room_passes_and_is_left_as_it_was(medium: Path) -> None:
    (medium / "mine").write_bytes(b"mine")
    heard: list[tuple[int, int | None]] = []
    probed = probe(medium, NONCE, lambda done, due: heard.append((done, due)))
    assert CLAIMED // 2 < probed < CLAIMED
    assert [path.name for path in medium.iterdir()] == ["mine"]
    assert heard[-1] == (2 * probed, 2 * probed)


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "written over"])
def test_a_medium_that_claims_more_than_it_has_is_found_out(
    medium: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    Forged(monkeypatch, 4, is_lost)
    with pytest.raises(BadMedium, match=r"less space than it reports.*use another medium"):
        probe(medium, NONCE)
    assert list(medium.iterdir()) == []


def test_a_medium_that_does_not_take_what_it_claims_is_named(
    medium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(BadMedium, match="writing them failed: disk full"):
        probe(medium, NONCE)
    assert list(medium.iterdir()) == []


def test_what_a_probe_that_was_cut_off_has_left_is_taken_away(medium: Path) -> None:
    (medium / FOLDER).mkdir()
    (medium / FOLDER / "r000").write_bytes(bytes(MARK_BYTES))
    probe(medium, NONCE)
    assert list(medium.iterdir()) == []
