"""What every ObjectStore promises, run against each adapter."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from support.objects import object_servers
from veen.objects.port import (
    InvalidKey,
    ObjectConflict,
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    Retention,
    StoreRefused,
    StoreSettings,
)
from veen.objects.store import open_store

ODD_KEYS = [
    "a",
    "a/b",
    "a/b/c",
    "a-b",
    "a.b",
    "a0",
    "...",
    ".hidden",
    "x/..y/.z.",
    " leading and trailing ",
    "é/e\u0301",
    "\uffee",
    "\U0001d11e/\U0001f600",
    "+&?#'\"<>~:;,=@!$()*[]{}|^`",
    "/".join(["d"] * 400),
    "\u20ac" * 83,
]
BAD_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/./b",
    "a\x00b",
    "a\nb",
    "a\\b",
    "a%2fb",
    "\ud800",
    "\uffff",
    "x" * 251,
    "/".join(["x" * 100] * 9),
]
RANGES = [
    (0, 5, b"01234"),
    (3, 4, b"3456"),
    (9, 1, b"9"),
    (8, 100, b"89"),
    (10, 5, b""),
    (1_000, 5, b""),
    (4, 0, b""),
    (10, 0, b""),
    (0, 2**40, b"0123456789"),
]


def big() -> bytes:
    return random.Random(5).randbytes(3 * 2**20 + 17)


def test_gives_back_what_was_put(objects: ObjectStore) -> None:
    objects.put("log/0001", b"entry")
    assert objects.get("log/0001") == b"entry"
    assert objects.size("log/0001") == 5


def test_takes_an_empty_object(objects: ObjectStore) -> None:
    objects.put("empty", b"")
    assert objects.get("empty") == b""
    assert objects.size("empty") == 0


def test_takes_the_same_bytes_again(objects: ObjectStore) -> None:
    objects.put("log/0001", b"entry")
    objects.put("log/0001", b"entry")
    assert objects.get("log/0001") == b"entry"


def test_never_rewrites(objects: ObjectStore) -> None:
    objects.put("log/0001", b"entry")
    for other in (b"forged", b"entry and more", b"entr", b""):
        with pytest.raises(ObjectConflict):
            objects.put("log/0001", other)
    assert objects.get("log/0001") == b"entry"


def test_never_rewrites_an_empty_object(objects: ObjectStore) -> None:
    objects.put("empty", b"")
    with pytest.raises(ObjectConflict):
        objects.put("empty", b"x")
    assert objects.get("empty") == b""


def test_says_what_is_missing(objects: ObjectStore, tmp_path: Path) -> None:
    objects.put("log/0001", b"entry")
    for key in ("log/0002", "log", "log/0001/x"):
        with pytest.raises(ObjectMissing):
            objects.get(key)
        with pytest.raises(ObjectMissing):
            objects.get_range(key, 0, 1)
        with pytest.raises(ObjectMissing):
            objects.size(key)
        with pytest.raises(ObjectMissing):
            objects.get_file(key, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_another_holder_sees_what_was_put(
    objects: ObjectStore, store_settings: StoreSettings
) -> None:
    objects.put("log/0001", b"entry")
    again = open_store(store_settings, object_servers.KEYS).objects
    assert again.get("log/0001") == b"entry"
    with pytest.raises(ObjectConflict):
        again.put("log/0001", b"forged")


def test_carries_files(objects: ObjectStore, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(big())
    objects.put_file("chunk", source)
    objects.put_file("chunk", source)
    objects.get_file("chunk", target, expect=hashlib.sha256(big()).digest())
    assert target.read_bytes() == big()
    assert objects.size("chunk") == len(big())
    source.write_bytes(big()[:-1] + b"x")
    with pytest.raises(ObjectConflict):
        objects.put_file("chunk", source)
    assert objects.get("chunk") == big()


def test_a_file_takes_the_place_of_another_only_when_it_is_right(
    objects: ObjectStore, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    objects.put("chunk", b"new")
    with pytest.raises(ObjectDamaged):
        objects.get_file("chunk", target, expect=bytes(32))
    assert target.read_bytes() == b"old"
    objects.get_file("chunk", target)
    assert target.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["target"]


def test_holds_the_object_to_the_expected_digest(objects: ObjectStore) -> None:
    objects.put("log/0001", b"entry")
    assert objects.get("log/0001", expect=hashlib.sha256(b"entry").digest()) == b"entry"
    with pytest.raises(ObjectDamaged):
        objects.get("log/0001", expect=hashlib.sha256(b"other").digest())


def test_refuses_more_than_a_single_put_takes(objects: ObjectStore, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(5 * 2**30 + 1)
    with pytest.raises(StoreRefused):
        objects.put_file("huge", tmp_path / "huge")
    with pytest.raises(ObjectMissing):
        objects.size("huge")


def test_reads_ranges(objects: ObjectStore) -> None:
    objects.put("digits", b"0123456789")
    for start, size, expected in RANGES:
        assert objects.get_range("digits", start, size) == expected


def test_refuses_ranges_that_are_none(objects: ObjectStore) -> None:
    objects.put("digits", b"0123456789")
    for start, size in [(-1, 5), (0, -1)]:
        with pytest.raises(ValueError, match="range"):
            objects.get_range("digits", start, size)


def test_an_empty_object_has_only_empty_ranges(objects: ObjectStore) -> None:
    objects.put("empty", b"")
    assert objects.get_range("empty", 0, 10) == b""


def test_takes_odd_keys_and_lists_them_by_their_bytes(objects: ObjectStore) -> None:
    for key in ODD_KEYS:
        objects.put(key, key.encode() + b"!")
    assert [objects.get(key) for key in ODD_KEYS] == [key.encode() + b"!" for key in ODD_KEYS]
    assert list(objects.keys()) == sorted(ODD_KEYS, key=str.encode)


def test_refuses_bad_keys(objects: ObjectStore, retention: Retention) -> None:
    for key in BAD_KEYS:
        with pytest.raises(InvalidKey):
            objects.put(key, b"x")
        with pytest.raises(InvalidKey):
            objects.get(key)
        with pytest.raises(InvalidKey):
            retention.delete(key)
    assert list(objects.keys()) == []


def test_lists_by_prefix_and_start(objects: ObjectStore) -> None:
    names = ["a", "a-b", "a/1", "a/2/x", "a/2/y", "a/3", "a0", "b/1"]
    for name in names:
        objects.put(name, b"x")
    assert list(objects.keys("a/")) == ["a/1", "a/2/x", "a/2/y", "a/3"]
    assert list(objects.keys("a/2")) == ["a/2/x", "a/2/y"]
    assert list(objects.keys("a/2/x")) == ["a/2/x"]
    assert list(objects.keys("c")) == []
    for start in [*names, "a/", "a/2", "a/2/", "a/2/xx", "zzz", "\U0001f600"]:
        assert list(objects.keys(start_after=start)) == [n for n in names if n > start]
        assert list(objects.keys("a/", start_after=start)) == [
            name for name in names if name > start and name.startswith("a/")
        ]


def test_lists_more_than_one_page(objects: ObjectStore) -> None:
    names = [f"n/{number:04}" for number in range(7 * 12)]
    for name in names:
        objects.put(name, b"")
    assert list(objects.keys()) == names
    assert list(objects.keys(start_after=names[33])) == names[34:]


def test_deletes_only_through_retention(objects: ObjectStore, retention: Retention) -> None:
    assert not [name for name in dir(objects) if "delete" in name or "remove" in name]
    objects.put("log/0001", b"entry")
    objects.put("log/0002", b"entry")
    retention.delete("log/0001")
    retention.delete("log/0001")
    assert list(objects.keys()) == ["log/0002"]
    with pytest.raises(ObjectMissing):
        objects.get("log/0001")
    objects.put("log/0001", b"another life")
    assert objects.get("log/0001") == b"another life"
