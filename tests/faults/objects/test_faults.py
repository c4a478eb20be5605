"""Faults between us and the S3 server: no object is lost, and none is wrong."""

from __future__ import annotations

import builtins
import hashlib
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.long_form import LONG
from support.objects import fault_proxy, object_servers
from veen.objects.port import (
    HeadMoved,
    HeadUnknown,
    ObjectConflict,
    ObjectMissing,
    Retention,
    Store,
    StoreUnavailable,
)
from veen.objects.store import open_store

T = TypeVar("T")
TIMEOUT = 0.15


@pytest.fixture(scope="module")
def proxy(moto: Any) -> Iterator[Any]:
    with fault_proxy.FaultProxy(moto.port) as running:
        yield running


def settled(action: Callable[[], T]) -> T:
    """What a caller does when the store was unavailable: the same again."""
    while True:
        try:
            return action()
        except StoreUnavailable:
            continue


class Player:
    """Random operations on a store and on a dictionary that says what must come of them."""

    def __init__(self, seed: int, store: Store, retention: Retention, folder: Path) -> None:
        self.chance = random.Random(f"operations {seed}")
        self.model: dict[str, bytes] = {}
        self.objects, self.heads, self.retention = store.objects, store.heads, retention
        self.head: bytes | None = None
        self.file = folder / "file"
        self.prefix = f"seed-{seed}/"

    def play(self, rounds: int) -> None:
        moves: builtins.list[Callable[[str], None]] = [
            self.put,
            self.put,
            self.put_file,
            self.forge,
            self.get,
            self.get_file,
        ]
        moves += [self.get_range, self.list, self.delete, self.swap]
        for _ in range(rounds):
            self.chance.choice(moves)(f"{self.prefix}{self.chance.randrange(5)}")

    def put(self, key: str) -> None:
        body = self.model.get(key) or self.chance.randbytes(self.chance.choice([1, 50, 9_000]))
        settled(lambda: self.objects.put(key, body))
        self.model[key] = body

    def put_file(self, key: str) -> None:
        body = self.model.get(key) or self.chance.randbytes(70_000)
        self.file.write_bytes(body)
        settled(lambda: self.objects.put_file(key, self.file))
        self.model[key] = body

    def forge(self, key: str) -> None:
        if key in self.model:
            with pytest.raises(ObjectConflict):
                settled(lambda: self.objects.put(key, b"forged " + self.model[key]))

    def get(self, key: str) -> None:
        try:
            assert settled(lambda: self.objects.get(key)) == self.model[key]
        except ObjectMissing:
            assert key not in self.model

    def get_file(self, key: str) -> None:
        if key in self.model:
            digest = hashlib.sha256(self.model[key]).digest()
            settled(lambda: self.objects.get_file(key, self.file, expect=digest))
            assert self.file.read_bytes() == self.model[key]

    def get_range(self, key: str) -> None:
        if key in self.model:
            start, size = self.chance.randrange(60), self.chance.randrange(60)
            result = settled(lambda: self.objects.get_range(key, start, size))
            assert result == self.model[key][start : start + size]

    def list(self, _key: str) -> None:
        assert settled(lambda: [*self.objects.keys(self.prefix)]) == sorted(self.model)

    def delete(self, key: str) -> None:
        settled(lambda: self.retention.delete(key))
        self.model.pop(key, None)

    def swap(self, _key: str) -> None:
        value = self.chance.randbytes(20)
        old = settled(lambda: self.heads.read(self.prefix + "head"))
        assert old.value == self.head
        try:
            assert self.heads.swap(old, value).value == value
        except StoreUnavailable:
            # Nobody else writes this head, so it is either the old value or the new one.
            result = settled(lambda: self.heads.read(self.prefix + "head")).value
            assert result in (self.head, value)
            self.head = result
        else:
            self.head = value


def test_no_schedule_of_faults_loses_or_changes_an_object(
    moto: Any, proxy: Any, tmp_path: Path
) -> None:
    def at(endpoint: str) -> tuple[Store, Retention]:
        settings = object_servers.s3_settings(
            endpoint, "faults/", timeout_seconds=TIMEOUT, attempts=6
        )
        result: tuple[Store, Retention] = object_servers.impatient_store(settings)
        return result

    store, retention = at(proxy.endpoint)
    direct, _ = at(moto.endpoint)
    schedules = 1_500 if LONG else 100
    for seed in range(schedules):
        player = Player(seed, store, retention, tmp_path)
        proxy.plan(seed)
        player.play(6)
        proxy.plan(None)
        stored = {key: direct.objects.get(key) for key in direct.objects.keys(player.prefix)}
        assert stored == player.model, seed
        assert direct.heads.read(player.prefix + "head").value == player.head, seed
    assert set(proxy.seen) > {"late silence", "cut upload", "short answer", "twice"}
    assert sum(proxy.seen.values()) > 6 * schedules


def test_one_of_many_wins_also_among_faults(moto: Any, proxy: Any) -> None:
    settings = object_servers.s3_settings(proxy.endpoint, "race/", timeout_seconds=0.5, attempts=6)
    stores = [object_servers.impatient_store(settings)[0] for _ in range(4)]

    def race(number: int) -> list[int]:
        won = []
        for key in range(60 if LONG else 10):
            try:
                settled(lambda: stores[number].objects.put(f"{key}", f"by {number}".encode()))  # noqa: B023
                won.append(key)
            except ObjectConflict:
                continue
        return won

    proxy.plan(77)
    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(race, range(4)))
    proxy.plan(None)
    keys = list(stores[0].objects.keys())
    assert sorted(key for mine in won for key in mine) == sorted(map(int, keys))
    for number, mine in enumerate(won):
        assert all(stores[0].objects.get(f"{key}") == f"by {number}".encode() for key in mine)


def test_no_update_of_a_head_is_lost_or_done_twice_among_faults(moto: Any, proxy: Any) -> None:
    settings = object_servers.s3_settings(proxy.endpoint, "swaps/", timeout_seconds=0.5, attempts=6)
    turns = 40 if LONG else 6

    def add(number: int) -> None:
        heads = object_servers.impatient_store(settings)[0].heads
        for turn in range(turns):
            word = f"{number}.{turn}"
            while True:
                old = settled(lambda: heads.read("list"))
                words = (old.value or b"").decode().split()
                if word in words:
                    break
                try:
                    heads.swap(old, " ".join([*words, word]).encode())
                    break
                except (HeadMoved, HeadUnknown, StoreUnavailable):
                    continue

    proxy.plan(78)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(add, range(3)))
    proxy.plan(None)
    heads = object_servers.impatient_store(settings)[0].heads
    words = (heads.read("list").value or b"").decode().split()
    assert sorted(words) == sorted(f"{n}.{turn}" for n in range(3) for turn in range(turns))


def test_opens_and_works_with_its_own_pauses_among_faults(moto: Any, proxy: Any) -> None:
    proxy.plan(79)
    settings = object_servers.s3_settings(proxy.endpoint, "open/", timeout_seconds=TIMEOUT)
    store = settled(lambda: open_store(settings, object_servers.KEYS))
    assert store.status.warnings == ()
    settled(lambda: store.objects.put("a", b"1"))
    assert settled(lambda: store.objects.get("a")) == b"1"
    proxy.plan(None)


def test_says_unavailable_when_nothing_listens(moto: Any) -> None:
    server = object_servers.moto()
    settings = object_servers.s3_settings(server.endpoint, timeout_seconds=1.0, attempts=2)
    store, _ = object_servers.impatient_store(settings)
    store.objects.put("a", b"1")
    server.stop()
    with pytest.raises(StoreUnavailable):
        store.objects.put("a", b"1")
    with pytest.raises(StoreUnavailable):
        store.objects.get("a")
    with pytest.raises(StoreUnavailable):
        list(store.objects.keys())
