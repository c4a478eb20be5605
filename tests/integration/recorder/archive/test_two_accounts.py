"""A clone between stores of different accounts: each is opened with its own credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.objects import object_servers
from support.recorder import archive_carry
from veen.objects.port import StoreCredentials
from veen.objects.store import open_store, open_to_read

OTHERS = StoreCredentials(access_key="AKIDOTHER", secret_key="the secret of another account")


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Any]:
    """A server that knows another account alone, and checks who asks."""
    server = object_servers.rclone(tmp_path / "theirs", OTHERS)
    yield server
    server.stop()


@pytest.fixture
def ours(hub_data: Path, tmp_path: Path) -> Iterator[Any]:
    """A server that knows our account alone, with an archive."""
    server = object_servers.rclone(tmp_path / "ours")
    settings = object_servers.s3_settings(server.endpoint, "a/", accept_overwriting_store=True)
    archive_carry.push(hub_data, open_store(settings, object_servers.KEYS))
    yield server
    server.stop()


def words(ours: Any, theirs: Any) -> tuple[str, ...]:
    return (
        "archive", "clone", "--store", f"s3://{object_servers.BUCKET}/a",
        "--endpoint", ours.endpoint, "--addressing", "path", "--to-store", f"s3://{object_servers.BUCKET}/b",
        "--to-endpoint", theirs.endpoint, "--to-region", "eu-central-1",
        "--accept-overwriting-store",
    )  # fmt: skip


def environment() -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": object_servers.KEYS.access_key,
        "AWS_SECRET_ACCESS_KEY": object_servers.KEYS.secret_key,
        "VEEN_TO_AWS_ACCESS_KEY_ID": OTHERS.access_key,
        "VEEN_TO_AWS_SECRET_ACCESS_KEY": OTHERS.secret_key,
    }


def test_each_store_is_opened_with_its_own_credentials(ours: Any, theirs: Any) -> None:
    done = archive_carry.veen(*words(ours, theirs), env=environment())
    assert done.returncode == 0, done.stderr
    source = open_to_read(object_servers.s3_settings(ours.endpoint, "a/"), object_servers.KEYS)
    target = open_to_read(object_servers.s3_settings(theirs.endpoint, "b/"), OTHERS)
    assert archive_carry.contents(source) == archive_carry.contents(target)
    assert (
        archive_carry.archive_of(source).head().value
        == archive_carry.archive_of(target).head().value
    )


def test_without_them_the_other_account_refuses_us(ours: Any, theirs: Any) -> None:
    known = environment()
    bare = {name: known[name] if name.startswith("AWS_") else "" for name in known}
    done = archive_carry.veen(*words(ours, theirs), env=bare)
    assert done.returncode == 4
    assert "403" in done.stderr
    assert object_servers.KEYS.secret_key not in done.stderr + done.stdout


def test_half_of_the_other_credentials_is_refused(ours: Any, theirs: Any) -> None:
    half = environment() | {"VEEN_TO_AWS_SECRET_ACCESS_KEY": ""}
    done = archive_carry.veen(*words(ours, theirs), env=half)
    assert done.returncode == 4
    assert "got one of them; set the other" in done.stderr


def test_the_source_may_be_of_another_kind_of_server(
    hub_data: Path, theirs: Any, moto: Any
) -> None:
    """moto keeps conditions and asks for no account, rclone asks for one and keeps none."""
    settings = object_servers.s3_settings(moto.endpoint, "accounts/")
    archive_carry.push(hub_data, open_store(settings, object_servers.KEYS))
    done = archive_carry.veen(
        "archive", "clone", "--store", settings.url, "--endpoint", moto.endpoint,
        "--addressing", "auto", "--to-addressing", "path", "--to-store", "s3://archive/c",
        "--to-endpoint", theirs.endpoint, "--accept-overwriting-store",
        env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    target = open_to_read(object_servers.s3_settings(theirs.endpoint, "c/"), OTHERS)
    assert archive_carry.contents(target) == archive_carry.contents(
        open_to_read(settings, object_servers.KEYS)
    )
