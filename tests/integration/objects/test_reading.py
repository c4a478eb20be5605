"""A store opened to read: no right to write is needed, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.objects import object_servers
from veen.objects.files import StoreLayout
from veen.objects.port import (
    FileSettings,
    NotAllowed,
    ObjectMissing,
    S3Settings,
    Store,
    StoreCredentials,
    StoreHead,
    StoreRefused,
    StoreSettings,
)
from veen.objects.s3 import open_bucket
from veen.objects.store import look_at, open_probed, open_store, open_to_read


class Guarded(NamedTuple):
    """A bucket whose server enforces rights."""

    settings: S3Settings
    writer: StoreCredentials
    reader: StoreCredentials


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    server = object_servers.moto()
    writer = object_servers.principal(
        server.endpoint, "writer", "GetObject", "ListBucket", "PutObject"
    )
    reader = object_servers.principal(server.endpoint, "reader", "GetObject", "ListBucket")
    object_servers.enforce_rights(server.endpoint)
    yield Guarded(object_servers.s3_settings(server.endpoint, "guarded/"), writer, reader)
    server.stop()


def fill(store: Store) -> StoreHead:
    for n in range(10):
        store.objects.put(f"log/{n}", b"entry %d" % n)
    return store.heads.swap(store.heads.read("head"), b"10")


def see_all(store: Store, head: StoreHead, tmp_path: Path) -> None:
    assert list(store.objects.keys("log/", start_after="log/7")) == ["log/8", "log/9"]
    assert store.objects.get("log/3") == b"entry 3"
    assert store.objects.get_range("log/3", 6, 10) == b"3"
    assert store.objects.size("log/3") == 7
    store.objects.get_file("log/3", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"entry 3"
    assert store.heads.read("head") == head
    assert store.heads.read("other").value is None
    with pytest.raises(ObjectMissing):
        store.objects.get("log/none")


def test_refuses_to_write(store_settings: StoreSettings, store: Store, tmp_path: Path) -> None:
    head = fill(store)
    (tmp_path / "file").write_bytes(b"more")
    reading = open_to_read(store_settings, object_servers.KEYS)
    for write in (
        lambda: reading.objects.put("log/10", b"more"),
        lambda: reading.objects.put_file("log/10", tmp_path / "file"),
        lambda: reading.heads.swap(head, b"11"),
    ):
        with pytest.raises(StoreRefused, match="is open read-only"):
            write()
    assert list(store.objects.keys()) == [f"log/{n}" for n in range(10)]
    see_all(reading, head, tmp_path)


def test_a_principal_that_may_only_read_reads_all(guarded: Guarded, tmp_path: Path) -> None:
    settings, writer, reader = guarded
    head = fill(open_store(settings, writer))
    see_all(open_to_read(settings, reader), head, tmp_path)
    with pytest.raises(NotAllowed):
        open_store(settings, reader)
    with pytest.raises(NotAllowed):
        open_probed(settings, reader, keeps_conditions=True).objects.put("log/x", b"")


def test_what_a_store_keeps_is_not_known_to_whoever_may_not_write(guarded: Guarded) -> None:
    settings, writer, reader = guarded
    assert look_at(settings, writer).keeps_conditions is True
    unknown = look_at(settings, reader)
    assert (unknown.keeps_conditions, unknown.warnings) == (None, ())
    assert open_to_read(settings, reader).status == unknown


def test_a_store_that_overwrites_is_read_and_looked_at_without_being_accepted(
    start_rclone: Callable[[Path], Any], tmp_path: Path
) -> None:
    endpoint = start_rclone(tmp_path).endpoint
    settings = object_servers.s3_settings(endpoint, "z1/")
    accepted = object_servers.s3_settings(endpoint, "z1/", accept_overwriting_store=True)
    head = fill(open_store(accepted, object_servers.KEYS))
    assert open_to_read(settings, object_servers.KEYS).heads.read("head").value == head.value
    status = look_at(settings, object_servers.KEYS)
    assert status.keeps_conditions is False
    assert len(status.warnings) == 2


def test_reading_a_directory_leaves_it_as_it_is(tmp_path: Path) -> None:
    settings = FileSettings(tmp_path / "store")
    head = fill(open_store(settings))
    before = {path: path.stat().st_mtime_ns for path in settings.root.rglob("*")}
    see_all(open_to_read(settings), head, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in settings.root.rglob("*")} == before


def test_a_copy_that_came_without_its_locks_is_read(tmp_path: Path) -> None:
    settings = FileSettings(tmp_path / "store")
    head = fill(open_store(settings))
    StoreLayout(settings.root).heads_lock.unlink()
    assert open_to_read(settings).heads.read("head") == head
    assert not StoreLayout(settings.root).heads_lock.exists()


def test_a_directory_without_a_store_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="expected a readable store"):
        open_to_read(FileSettings(tmp_path / "store"))
    assert list(tmp_path.iterdir()) == []


def test_who_opens_what_another_has_probed_does_not_probe_again(moto: Any) -> None:
    settings = object_servers.s3_settings(moto.endpoint, "unprobed/")
    for keeps in (True, False):
        store = open_probed(settings, object_servers.KEYS, keeps_conditions=keeps)
        assert store.status.keeps_conditions is keeps
        store.objects.put("a", b"same")
        assert list(store.objects.keys()) == ["a"]
    assert open_bucket(settings, object_servers.KEYS).page("", "") == ["objects/a"]
