"""Each fault once, at a known request: what was done is recognised as done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.objects import fault_proxy, object_servers
from veen.objects.port import (
    HeadMoved,
    HeadUnknown,
    ObjectConflict,
    ObjectDamaged,
    ObjectMissing,
    Store,
    StoreUnavailable,
)

FAULTS = [
    "500",
    "503",
    "429",
    "late 500",
    "reset",
    "late reset",
    "silence",
    "late silence",
    "cut upload",
    "cut answer",
    "short answer",
    "twice",
]


@pytest.fixture(scope="module")
def proxy(moto: Any) -> Iterator[Any]:
    with fault_proxy.FaultProxy(moto.port) as running:
        yield running


def a_store(proxy: Any, timeout_seconds: float, attempts: int) -> Store:
    settings = object_servers.s3_settings(
        proxy.endpoint, "single/", timeout_seconds=timeout_seconds, attempts=attempts
    )
    store: Store = object_servers.impatient_store(settings)[0]
    return store


@pytest.fixture(scope="module")
def store(proxy: Any) -> Store:
    return a_store(proxy, timeout_seconds=20, attempts=3)


@pytest.fixture(scope="module")
def nervous(proxy: Any) -> Store:
    """For requests that nobody answers; a slow answer is taken for none now and then."""
    return a_store(proxy, timeout_seconds=0.15, attempts=20)


@pytest.fixture(scope="module")
def hasty(proxy: Any) -> Store:
    """Tries once only."""
    return a_store(proxy, timeout_seconds=20, attempts=1)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_operation_survives(
    store: Store, nervous: Store, proxy: Any, fault: str, tmp_path: Path
) -> None:
    store = nervous if "silence" in fault else store
    body, key = b"body of " + fault.encode() * 100, f"{fault}/key"
    proxy.script(fault)
    store.objects.put(key, body)
    proxy.script(fault)
    with pytest.raises(ObjectConflict):
        store.objects.put(key, body + b"!")
    proxy.script("well", fault)
    with pytest.raises(ObjectConflict):
        store.objects.put(key, body[:-1])
    proxy.script(fault)
    assert store.objects.get(key) == body
    proxy.script(fault)
    store.objects.get_file(key, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == body
    proxy.script(fault)
    assert store.objects.get_range(key, 5, 50) == body[5:55]
    proxy.script(fault)
    assert list(store.objects.keys(f"{fault}/")) == [key]
    proxy.script(fault)
    with pytest.raises(ObjectMissing):
        store.objects.get(f"{fault}/missing")
    proxy.script(fault)
    head = store.heads.swap(store.heads.read(fault), b"1")
    proxy.script(fault)
    head = store.heads.swap(head, b"2")
    assert store.heads.read(fault) == head


@pytest.mark.parametrize("fault", ["late 500", "late reset"])
def test_success_without_an_answer_is_success(hasty: Store, proxy: Any, fault: str) -> None:
    proxy.script(fault)
    hasty.objects.put(f"done {fault}", b"body")
    assert hasty.objects.get(f"done {fault}") == b"body"
    proxy.script("well", fault)
    head = hasty.heads.swap(hasty.heads.read(f"done {fault}"), b"1")
    assert hasty.heads.read(f"done {fault}") == head


def test_a_timeout_after_success_is_success(proxy: Any) -> None:
    hasty = a_store(proxy, timeout_seconds=1.5, attempts=1)
    proxy.script("late silence")
    hasty.objects.put("timeout", b"body")
    assert hasty.objects.get("timeout") == b"body"
    old = hasty.heads.read("timeout")
    proxy.script("late silence")
    assert hasty.heads.swap(old, b"1") == hasty.heads.read("timeout")


@pytest.mark.parametrize("fault", ["500", "503", "reset", "cut upload"])
def test_failure_is_not_taken_for_success(hasty: Store, proxy: Any, fault: str) -> None:
    proxy.script(fault)
    with pytest.raises(StoreUnavailable):
        hasty.objects.put(f"never {fault}", b"body")
    with pytest.raises(ObjectMissing):
        hasty.objects.get(f"never {fault}")
    old = hasty.heads.read(f"never {fault}")
    proxy.script(fault)
    with pytest.raises(HeadUnknown):
        hasty.heads.swap(old, b"1")
    assert hasty.heads.read(f"never {fault}") == old


def test_other_bytes_found_after_a_lost_answer_are_a_conflict(
    store: Store, hasty: Store, proxy: Any
) -> None:
    hasty.objects.put("taken", b"by another")
    proxy.script("late reset")
    with pytest.raises(ObjectConflict):
        hasty.objects.put("taken", b"by us")


def test_equal_bytes_of_another_are_not_our_swap(store: Store, proxy: Any) -> None:
    """Both count from 1 to 2; the one whose request never arrived must not believe it did."""
    item = store.heads.swap(store.heads.read("count"), b"1")
    store.heads.swap(item, b"2")
    proxy.script("500")
    with pytest.raises(HeadUnknown):
        store.heads.swap(item, b"2")
    with pytest.raises(HeadMoved):
        store.heads.swap(item, b"2")


def test_a_put_that_arrives_late_changes_nothing(store: Store, nervous: Store, proxy: Any) -> None:
    proxy.script("delayed")
    nervous.objects.put("late", b"body")
    proxy.release()
    assert store.objects.get("late") == b"body"


def test_a_swap_that_arrives_late_changes_nothing(store: Store, nervous: Store, proxy: Any) -> None:
    item = store.heads.swap(store.heads.read("late"), b"1")
    proxy.script("delayed")
    two = nervous.heads.swap(item, b"2")
    three = store.heads.swap(two, b"3")
    proxy.release()
    assert store.heads.read("late") == three


def test_an_upload_changed_on_its_way_is_noticed(store: Store, proxy: Any) -> None:
    """This server checks no checksum, so the wrong object is there; the put must not succeed."""
    proxy.script("flipped upload")
    with pytest.raises((ObjectConflict, ObjectDamaged)):
        store.objects.put("flipped", b"some bytes")
    with pytest.raises(ObjectDamaged):
        store.objects.get("flipped")


def test_an_etag_of_another_kind_makes_a_put_look(store: Store, proxy: Any) -> None:
    proxy.script("other etag")
    store.objects.put("other etag", b"body")
    assert store.objects.get("other etag") == b"body"
    proxy.script("flipped upload", "other etag")
    with pytest.raises((ObjectConflict, ObjectDamaged)):
        store.objects.put("other etag, other bytes", b"body")


def test_a_put_that_the_store_has_swallowed_is_no_success(store: Store, proxy: Any) -> None:
    proxy.script("swallowed")
    with pytest.raises(
        StoreUnavailable, match="is missing although the store acknowledged the put"
    ):
        store.objects.put("swallowed", b"body")
    store.objects.put("swallowed", b"body")
    assert store.objects.get("swallowed") == b"body"
