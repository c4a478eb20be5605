"""One flipped bit anywhere in a data directory is found, or repaired, or can do no harm."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from hub.storage.datadir import DataDirLocked
from support.hub import driven_hub
from support.long_form import LONG

# What a flip in one of these breaks may show in the other.
IDENTITY = {"hub-identity.cbor", "hub-identity.sig"}


def rows(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    try:
        return list(db.iterdump())
    finally:
        db.close()


@pytest.fixture
def flips(hub_copy: Path) -> list[tuple[Path, int, int]]:
    chance = random.Random(20_260)
    # SQLite makes and removes its -wal and -shm files as it pleases.
    stay = (path for path in hub_copy.rglob("*") if not path.name.endswith(("-wal", "-shm")))
    files = sorted(path for path in stay if path.is_file() and path.stat().st_size)
    chosen = [chance.choice(files) for _ in range(1_000 if LONG else 150)]
    return [(path, chance.randrange(path.stat().st_size), chance.randrange(8)) for path in chosen]


def test_every_flip_is_found(hub_copy: Path, flips: list[tuple[Path, int, int]]) -> None:
    for path, at, bit in flips:
        before = path.read_bytes()
        raw = bytearray(before)
        raw[at] ^= 1 << bit
        path.write_bytes(raw)
        _assert_seen(hub_copy, path, at)
        if path.exists():
            path.write_bytes(before)
    assert driven_hub.check(hub_copy).ok


def _assert_seen(root: Path, path: Path, at: int) -> None:
    name = str(path.relative_to(root))
    if name == "lock":
        with pytest.raises(DataDirLocked):
            driven_hub.check(root)
        return
    report = driven_hub.check(root)
    if name.startswith("derived/"):
        assert report.ok
        _assert_repaired(root, report.derived)
        return
    (fault,) = report.faults
    assert fault.file in (IDENTITY if name in IDENTITY else {name})
    assert fault.offset <= at


def _assert_repaired(root: Path, derived: tuple[str, ...]) -> None:
    """Where nothing was reported, the flip must have hit what no query ever reads."""
    result = None if derived else rows(root / "derived" / "index.sqlite")
    assert driven_hub.rebuild(root).agreed is not bool(derived)
    assert driven_hub.check(root).derived == ()
    if result is not None:
        driven_hub.Bench(root, now=driven_hub.START + 10**6).stop()
