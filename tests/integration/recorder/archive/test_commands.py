"""What the commands say: the state of a store, and how they fail."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from recorder.archive.store import HubArchive, hubs
from support.objects import object_servers
from support.recorder import archive_carry
from veen.objects.port import Store


def test_status_tells_of_the_store_and_of_every_hub(
    stopped_hub: Any, hub_data: Path, store_folder: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.keygen(tmp_path / "me")
    archive_carry.push(hub_data, file_store, archive_carry.sealer(tmp_path / "me"))
    file_store.objects.put(f"hubs/{'ab' * 32}/log/left", b"by a push that never ended")
    done = archive_carry.veen("archive", "status", "--store", store_folder.as_uri(), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["kind"], document["keeps_conditions"], document["warnings"]) == (
        "directory",
        True,
        [],
    )
    assert document["unfinished"] == ["ab" * 32]
    (hub,) = document["hubs"]
    assert (hub["hub_id"], hub["entries"]) == (stopped_hub.hub_id.hex(), stopped_hub.entries() + 1)
    assert (hub["has_escrow"], hub["is_escrowed"], hub["unsettled_from"]) == (True, True, None)
    assert 0 <= hub["age_sec"] <= time.time() - hub["last_hub_ts"]
    ends = {item["label"]: (item["end_seq"], item["sealed_seq"]) for item in hub["labels"]}
    assert ends[stopped_hub.label.hex()] == (36, 30)
    text = archive_carry.veen("archive", "status", "--store", store_folder.as_uri())
    assert "escrow holds the current key" in text.stdout
    assert "a push that never ended" in text.stdout


def test_the_hubs_of_a_store_are_found_without_listing_all_of_it(file_store: Store) -> None:
    names = [bytes([n]) * 32 for n in (1, 7, 255)]
    for name in names:
        for n in range(20):
            file_store.objects.put(HubArchive(file_store, name).keys.file(f"log/{n}"), b"")
    file_store.objects.put("hubs/strange/file", b"")
    assert list(hubs(file_store)) == names


def test_a_hub_must_be_named_where_there_are_several_or_none(
    hub_data: Path, store_folder: Path, file_store: Store
) -> None:
    empty = archive_carry.veen("archive", "verify", "--store", store_folder.as_uri())
    assert empty.returncode == 1
    assert "give the hub with --hub-id" in empty.stderr
    unknown = ("--hub-id", "ab" * 32)
    missing = archive_carry.veen(
        "archive", "verify", "--store", store_folder.as_uri(), *unknown, "--json"
    )
    assert missing.returncode == 3
    assert json.loads(missing.stdout)["code"] == "NO_ARCHIVE"


def test_a_store_that_needs_credentials_says_so_and_shows_none(hub_data: Path, moto: Any) -> None:
    place = ("--store", f"s3://{object_servers.BUCKET}/x", "--endpoint", moto.endpoint)
    bare = {name: "" for name in os.environ if name.startswith("AWS_")}
    done = archive_carry.veen("archive", "push", "--data-dir", hub_data, *place, env=bare)
    assert done.returncode == 4
    assert "needs an access key and a secret" in done.stderr
    secret = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "very secret words"}
    wrong = (
        "--store",
        "s3://no-such-bucket/x",
        "--endpoint",
        moto.endpoint,
        "--addressing",
        "path",
    )
    done = archive_carry.veen("archive", "push", "--data-dir", hub_data, *wrong, env=secret)
    assert done.returncode == 4
    assert "very secret words" not in done.stdout + done.stderr


def test_verify_reads_every_byte_when_asked(
    hub_data: Path, store_folder: Path, file_store: Store
) -> None:
    archive_carry.push(hub_data, file_store)
    words = ("--store", store_folder.as_uri(), "--hub-identity", hub_data)
    done = archive_carry.veen("archive", "verify", *words, "--read-all")
    assert done.returncode == 0, done.stderr
    assert "0 flaws" in done.stdout
