"""A server that checks credentials and keeps files, but overwrites whatever the condition."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.objects import fault_proxy, object_servers
from veen.objects.port import HeadMoved, ObjectConflict, Store, StoreRefused
from veen.objects.store import open_retention, open_store

StartRclone = Callable[[Path], Any]


def accepted(server: Any) -> Store:
    settings = object_servers.s3_settings(server.endpoint, "z1/", accept_overwriting_store=True)
    return open_store(settings, object_servers.KEYS)


def test_refuses_a_store_that_overwrites(start_rclone: StartRclone, tmp_path: Path) -> None:
    settings = object_servers.s3_settings(start_rclone(tmp_path).endpoint)
    with pytest.raises(StoreRefused, match=r"ignores If-None-Match.*accept_overwriting_store"):
        open_store(settings, object_servers.KEYS)


def test_uses_a_store_that_overwrites_when_asked_to_and_says_so(
    start_rclone: StartRclone,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        store = accepted(start_rclone(tmp_path))
    assert not store.status.keeps_if_none_match
    assert not store.status.keeps_if_match
    assert ["If-None-Match" in line for line in store.status.warnings] == [True, False]
    assert [record.getMessage() for record in caplog.records] == [*store.status.warnings]
    store.objects.put("log/0001", b"entry")
    store.objects.put("log/0001", b"entry")
    with pytest.raises(ObjectConflict):
        store.objects.put("log/0001", b"forged")
    assert store.objects.get("log/0001") == b"entry"
    nothing = store.heads.read("head")
    item = store.heads.swap(nothing, b"1")
    with pytest.raises(HeadMoved):
        store.heads.swap(nothing, b"other")
    assert store.heads.read("head") == item


def test_refuses_wrong_credentials_in_clear_words_and_without_the_secret(
    start_rclone: StartRclone, tmp_path: Path
) -> None:
    server = start_rclone(tmp_path)
    settings = object_servers.s3_settings(server.endpoint, accept_overwriting_store=True)
    for wrong in (
        replace(object_servers.KEYS, secret_key="not the secret"),
        replace(object_servers.KEYS, access_key="NOBODY"),
    ):
        with pytest.raises(StoreRefused, match=r"403.*check the access key") as refused:
            open_store(settings, wrong)
        assert "not the secret" not in str(refused.value)
        assert "not the secret" not in repr(wrong)
        with pytest.raises(StoreRefused):
            open_retention(settings, wrong).delete("log/0001")
    assert not (tmp_path / object_servers.BUCKET / "probe").exists()


def test_refuses_a_bucket_that_is_not_there(start_rclone: StartRclone, tmp_path: Path) -> None:
    settings = object_servers.s3_settings(start_rclone(tmp_path).endpoint, bucket="nowhere")
    with pytest.raises(StoreRefused, match="no such bucket"):
        open_store(settings, object_servers.KEYS)


def test_an_upload_changed_on_its_way_is_refused_and_sent_again(
    start_rclone: StartRclone, tmp_path: Path
) -> None:
    with fault_proxy.FaultProxy(start_rclone(tmp_path).port) as proxy:
        store = accepted(proxy)
        proxy.script("well", "flipped upload")
        store.objects.put("a", b"some bytes")
        assert store.objects.get("a") == b"some bytes"


def test_what_was_put_outlives_the_server(start_rclone: StartRclone, tmp_path: Path) -> None:
    first = start_rclone(tmp_path)
    store = accepted(first)
    keys = [f"log/{number:04}" for number in range(20)]
    for key in keys:
        store.objects.put(key, key.encode() * 1_000)
    head = store.heads.swap(store.heads.read("head"), b"20")
    first.stop()
    again = accepted(start_rclone(tmp_path))
    assert list(again.objects.keys()) == keys
    assert [again.objects.get(key) for key in keys] == [key.encode() * 1_000 for key in keys]
    assert again.heads.read("head").value == head.value
