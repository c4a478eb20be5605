"""Commands that only read, run by who may not write; and what a store keeps, as metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.objects import object_servers
from support.recorder import archive_carry
from veen.objects.port import Store, StoreCredentials
from veen.objects.store import open_store

OK, REFUSED = 0, 4


class Guarded(NamedTuple):
    """A bucket whose server enforces rights: its words on a command line, and two principals."""

    place: tuple[str, ...]
    store: Store
    writer: Mapping[str, str]
    reader: Mapping[str, str]


def environment(keys: StoreCredentials) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": keys.access_key, "AWS_SECRET_ACCESS_KEY": keys.secret_key}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    server = object_servers.moto()
    writer = object_servers.principal(
        server.endpoint, "writer", "GetObject", "ListBucket", "PutObject"
    )
    reader = object_servers.principal(server.endpoint, "reader", "GetObject", "ListBucket")
    object_servers.enforce_rights(server.endpoint)
    settings = object_servers.s3_settings(server.endpoint, "line/")
    place = ("--store", settings.url, "--endpoint", server.endpoint, "--addressing", "path")
    store = open_store(settings, writer)
    yield Guarded(place, store, environment(writer), environment(reader))
    server.stop()


def samples(path: Path) -> dict[tuple[str, ...], float]:
    """Each sample by its name and labels, without the store."""
    return {
        (
            sample.name,
            *(value for name, value in sorted(sample.labels.items()) if name != "store"),
        ): (sample.value)
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }


def test_a_principal_that_may_only_read_verifies_restores_clones_and_audits(
    stopped_hub: Any, hub_data: Path, guarded: Guarded, tmp_path: Path
) -> None:
    refused = archive_carry.veen(
        "archive", "push", "--data-dir", hub_data, *guarded.place, env=guarded.reader
    )  # fmt: skip
    assert refused.returncode == REFUSED, refused.stderr
    assert "permissions" in refused.stderr
    archive_carry.push(hub_data, guarded.store)
    config, copy = ("--config", stopped_hub.toml), (tmp_path / "copy").as_uri()
    by = ("--hub-identity", hub_data)
    for words in (
        ("archive", "verify", *guarded.place, "--read-all", *by),
        ("archive", "restore", *guarded.place, "--to", tmp_path / "hub", *config),
        ("archive", "clone", *guarded.place, "--to-store", copy),
        ("audit", "log", *guarded.place, *config, *by),
    ):
        done = archive_carry.veen(*words, env=guarded.reader)
        assert done.returncode == OK, (words, done.stderr)
    whole = archive_carry.files(hub_data)
    assert (
        archive_carry.files(tmp_path / "hub").items()
        >= {name: body for name, body in whole.items() if name.startswith("log/")}.items()
    )


def test_status_says_that_it_could_not_look_and_its_metrics_say_nothing_of_it(
    hub_data: Path, guarded: Guarded, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, guarded.store)
    words = ("archive", "status", *guarded.place, "--metrics", tmp_path / "veen.prom")
    done = archive_carry.veen(*words, env=guarded.reader)
    assert done.returncode == OK, done.stderr
    assert "was not probed for" in done.stdout
    result = samples(tmp_path / "veen.prom")
    assert not any(name == "veen_archive_keeps_condition" for name, *_ in result)
    done = archive_carry.veen(*words, "--json", env=guarded.writer)
    document = json.loads(done.stdout)
    assert (document["keeps_conditions"], document["warnings"]) == (True, [])
    result = samples(tmp_path / "veen.prom")
    assert result["veen_archive_keeps_condition", "if_none_match"] == 1
    (hub,) = document["hubs"]
    assert result["veen_archive_entries", hub["hub_id"]] == hub["entries"]
    assert result["veen_archive_last_hub_ts_seconds", hub["hub_id"]] == hub["last_hub_ts"]
    assert result["veen_archive_escrow_has_current_key", hub["hub_id"]] == 0


@pytest.fixture
def overwriting(tmp_path: Path) -> Iterator[Any]:
    server = object_servers.rclone(tmp_path / "rclone")
    yield server
    server.stop()


def test_a_store_that_ignores_conditions_is_seen_in_status_and_metrics(
    hub_data: Path, overwriting: Any, tmp_path: Path
) -> None:
    place = ("--store", f"s3://{object_servers.BUCKET}/z1", "--endpoint", overwriting.endpoint,
             "--addressing", "path")  # fmt: skip
    run = partial(archive_carry.veen, env=environment(object_servers.KEYS))
    push = ("archive", "push", "--data-dir", hub_data, *place)
    assert run(*push).returncode == REFUSED
    done = run(*push, "--accept-overwriting-store", "--json")
    assert done.returncode == OK, done.stderr
    file = tmp_path / "veen.prom"
    done = run("archive", "status", *place, "--metrics", file)
    assert done.returncode == OK, done.stderr
    assert "DOES NOT SUPPORT conditional writes" in done.stdout
    assert "WARNING: s3://archive/z1/ ignores If-None-Match" in done.stdout
    result = samples(file)
    assert result["veen_archive_keeps_condition", "if_none_match"] == 0
    assert result["veen_archive_keeps_condition", "if_match"] == 0
    by = ("--hub-identity", hub_data)
    assert run("archive", "verify", *place, "--read-all", *by).returncode == OK


def test_metrics_that_cannot_be_written_are_reported(
    store_folder: Path, file_store: Store, tmp_path: Path
) -> None:
    words = (
        "archive",
        "status",
        "--store",
        store_folder.as_uri(),
        "--metrics",
        tmp_path / "no" / "x",
    )
    done = archive_carry.veen(*words)
    assert done.returncode == REFUSED
    assert "No such file or directory" in done.stderr
