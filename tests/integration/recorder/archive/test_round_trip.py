"""A hub is archived, lost, and restored from objects alone; it goes on where it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.hub import spec_objects
from support.objects import object_servers
from support.recorder import archive_carry
from support.recorder.recorded_hub import answers_of
from zone.services import free_port


@pytest.fixture(params=["files", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """The options of a store, and the environment that opens it."""
    if request.param == "files":
        return ("--store", f"file://{tmp_path}/store"), {}
    moto = request.getfixturevalue("moto")
    env = {
        "AWS_ACCESS_KEY_ID": object_servers.KEYS.access_key,
        "AWS_SECRET_ACCESS_KEY": object_servers.KEYS.secret_key,
    }
    place = ("--store", f"s3://{object_servers.BUCKET}/round-trip", "--endpoint", moto.endpoint)
    return (*place, "--addressing", "path"), env


def test_a_restored_hub_gives_the_same_answers_and_goes_on(
    stopped_hub: Any,
    hub_data: Path,
    where: tuple[tuple[str, ...], dict[str, str]],
    tmp_path: Path,
    run_hub: Callable[[Path], Any],
) -> None:
    store, env = where
    me, to = tmp_path / "me", tmp_path / "again" / "data"
    archive_carry.keygen(me)
    config = ("--config", stopped_hub.toml)
    assert archive_carry.audit(hub_data, stopped_hub.toml).ok
    escrow = ("--escrow", me / "identity_card.pub")
    pushed = archive_carry.veen(
        "archive", "push", "--data-dir", hub_data, *store, *escrow, "--json", env=env
    )
    assert pushed.returncode == 0, pushed.stdout + pushed.stderr
    assert archive_carry.detail(pushed)["is_escrowed"] is True
    before = archive_carry.files(hub_data)
    shutil.rmtree(hub_data)
    done = archive_carry.veen(
        "archive", "restore", *store, "--to", to, "--client", me, *config, "--json", env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "are not in this directory" in done.stderr
    detail = archive_carry.detail(done)
    assert (detail["faults"], detail["hub_id"]) == (0, stopped_hub.hub_id.hex())
    assert archive_carry.files(to) == before
    _goes_on(stopped_hub, run_hub(to))
    assert archive_carry.audit(to, stopped_hub.toml).ok


def _goes_on(recorded: Any, hub: Any) -> None:
    client = hub.client()
    assert (client.hub_id, client.hub_pks) == (recorded.hub_id, [recorded.hub_pk])
    labels: dict[bytes, int] = {}
    for label, seq in recorded.answers:
        labels[label] = max(seq, labels.get(label, 0))
    assert answers_of(client, labels) == recorded.answers
    for name, signer in (("logs/a", "alice"), ("record/c", "carol")):
        old = recorded.writers[name]
        writer = client.writer(spec_objects.key(signer), name, auth_ref=old.auth_ref)
        writer.seq, writer.prev_ack = old.seq, old.prev_ack
        receipt = client.submit(writer.msg(b"after the restore"))
        assert receipt[2] == labels[old.label] + 1
        assert client.read(client.log(old.label)).mmr.size == receipt[2]
    assert hub.stop() == 0


def test_without_keys_the_directory_is_whole_and_the_hub_says_what_is_missing(
    stopped_hub: Any, hub_data: Path, store_folder: Path, file_store: Any, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, file_store)
    to = tmp_path / "again"
    config = ("--config", stopped_hub.toml)
    done = archive_carry.veen(
        "archive", "restore", "--store", store_folder.as_uri(), "--to", to, *config
    )
    assert done.returncode == 0, done.stderr
    assert archive_carry.files(to) == archive_carry.files(hub_data)
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    started = archive_carry.veen("hub", "start", "--data-dir", to, *config, *listen)
    assert started.returncode != 0
    assert "no private key for the current hub key" in started.stderr


def test_a_directory_that_is_not_empty_is_left_alone(
    hub_data: Path, file_store: Any, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, file_store)
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "mine").write_text("kept")
    with pytest.raises(Exception, match="does not exist or is empty"):
        archive_carry.restore(file_store, tmp_path / "to")
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["mine"]
    (tmp_path / "other.restoring").mkdir()
    with pytest.raises(Exception, match="another restore is running, or was interrupted"):
        archive_carry.restore(file_store, tmp_path / "other")
