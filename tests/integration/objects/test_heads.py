"""What every HeadStore promises, run against each adapter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from veen.objects.port import HeadMoved, HeadStore, InvalidKey, ObjectMissing, Store, StoreHead


def test_a_head_begins_as_nothing(heads: HeadStore) -> None:
    assert heads.read("archive").value is None


def test_a_swap_is_seen_by_the_next_reader(heads: HeadStore) -> None:
    first = heads.swap(heads.read("archive"), b"1")
    assert heads.read("archive") == first == StoreHead("archive", b"1", first.version)
    second = heads.swap(first, b"2")
    assert heads.read("archive") == second
    assert second.value == b"2"


def test_an_empty_value_is_a_value(heads: HeadStore) -> None:
    head = heads.swap(heads.read("archive"), b"")
    assert heads.read("archive").value == b""
    assert heads.swap(head, b"1").value == b"1"


def test_the_second_of_two_swaps_is_refused(heads: HeadStore) -> None:
    nothing = heads.read("archive")
    item = heads.swap(nothing, b"1")
    with pytest.raises(HeadMoved):
        heads.swap(nothing, b"other")
    heads.swap(item, b"2")
    with pytest.raises(HeadMoved):
        heads.swap(item, b"other")
    assert heads.read("archive").value == b"2"


def test_a_swap_to_what_is_there_already_is_refused_all_the_same(heads: HeadStore) -> None:
    """Two that count to the same number must not both believe they did."""
    item = heads.swap(heads.read("archive"), b"1")
    heads.swap(item, b"2")
    with pytest.raises(HeadMoved):
        heads.swap(item, b"2")


def test_a_head_that_was_never_there_cannot_be_swapped(heads: HeadStore) -> None:
    item = heads.swap(heads.read("archive"), b"1")
    with pytest.raises(HeadMoved):
        heads.swap(replace(item, name="other"), b"2")
    assert heads.read("other").value is None


def test_heads_stand_apart_from_each_other_and_from_objects(store: Store) -> None:
    store.objects.put("archive", b"object")
    for name in ("archive", "archive/a", "archive-b", "\U0001f600"):
        store.heads.swap(store.heads.read(name), name.encode())
    for name in ("archive", "archive/a", "archive-b", "\U0001f600"):
        assert store.heads.read(name).value == name.encode()
    assert store.objects.get("archive") == b"object"
    assert list(store.objects.keys()) == ["archive"]
    with pytest.raises(ObjectMissing):
        store.objects.get("archive-b")


def test_refuses_bad_names(heads: HeadStore) -> None:
    for name in ("", "../x", "/x", "a//b"):
        with pytest.raises(InvalidKey):
            heads.read(name)
        with pytest.raises(InvalidKey):
            heads.swap(StoreHead(name, None, ""), b"x")
