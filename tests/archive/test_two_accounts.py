"""A clone between stores of different accounts: each is opened with its own credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from veen.objects.settings import Credentials
from veen.objects.store import open_store, open_to_read

OTHERS = Credentials(access_key="AKIDOTHER", secret_key="the secret of another account")


@pytest.fixture
def theirs(servers: ModuleType, tmp_path: Path) -> Iterator[Any]:
    """A server that knows another account alone, and checks who asks."""
    server = servers.rclone(tmp_path / "theirs", OTHERS)
    yield server
    server.stop()


@pytest.fixture
def ours(data: Path, servers: ModuleType, carry: ModuleType, tmp_path: Path) -> Iterator[Any]:
    """A server that knows our account alone, with an archive."""
    server = servers.rclone(tmp_path / "ours")
    settings = servers.s3_settings(server.endpoint, "a/", accept_overwriting_store=True)
    carry.push(data, open_store(settings, servers.KEYS))
    yield server
    server.stop()


def words(servers: ModuleType, ours: Any, theirs: Any) -> tuple[str, ...]:
    return (
        "archive", "clone", "--store", f"s3://{servers.BUCKET}/a", "--endpoint", ours.endpoint,
        "--addressing", "path", "--to-store", f"s3://{servers.BUCKET}/b",
        "--to-endpoint", theirs.endpoint, "--to-region", "eu-central-1",
        "--accept-overwriting-store",
    )  # fmt: skip


def environment(servers: ModuleType) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": servers.KEYS.access_key,
        "AWS_SECRET_ACCESS_KEY": servers.KEYS.secret_key,
        "VEEN_TO_AWS_ACCESS_KEY_ID": OTHERS.access_key,
        "VEEN_TO_AWS_SECRET_ACCESS_KEY": OTHERS.secret_key,
    }


def test_each_store_is_opened_with_its_own_credentials(
    ours: Any, theirs: Any, servers: ModuleType, carry: ModuleType
) -> None:
    done = carry.veen(*words(servers, ours, theirs), env=environment(servers))
    assert done.returncode == 0, done.stderr
    source = open_to_read(servers.s3_settings(ours.endpoint, "a/"), servers.KEYS)
    target = open_to_read(servers.s3_settings(theirs.endpoint, "b/"), OTHERS)
    assert carry.contents(source) == carry.contents(target)
    assert carry.archive_of(source).head().value == carry.archive_of(target).head().value


def test_without_them_the_other_account_refuses_us(
    ours: Any, theirs: Any, servers: ModuleType, carry: ModuleType
) -> None:
    known = environment(servers)
    bare = {name: known[name] if name.startswith("AWS_") else "" for name in known}
    done = carry.veen(*words(servers, ours, theirs), env=bare)
    assert done.returncode == 4
    assert "403" in done.stderr
    assert servers.KEYS.secret_key not in done.stderr + done.stdout


def test_half_of_the_other_credentials_is_refused(
    ours: Any, theirs: Any, servers: ModuleType, carry: ModuleType
) -> None:
    half = environment(servers) | {"VEEN_TO_AWS_SECRET_ACCESS_KEY": ""}
    done = carry.veen(*words(servers, ours, theirs), env=half)
    assert done.returncode == 4
    assert "one is not set" in done.stderr


def test_the_source_may_be_of_another_kind_of_server(
    data: Path, theirs: Any, moto: Any, servers: ModuleType, carry: ModuleType
) -> None:
    """moto keeps conditions and asks for no account, rclone asks for one and keeps none."""
    settings = servers.s3_settings(moto.endpoint, "accounts/")
    carry.push(data, open_store(settings, servers.KEYS))
    done = carry.veen(
        "archive", "clone", "--store", settings.url, "--endpoint", moto.endpoint,
        "--addressing", "auto", "--to-addressing", "path", "--to-store", "s3://archive/c",
        "--to-endpoint", theirs.endpoint, "--accept-overwriting-store",
        env=environment(servers),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    target = open_to_read(servers.s3_settings(theirs.endpoint, "c/"), OTHERS)
    assert carry.contents(target) == carry.contents(open_to_read(settings, servers.KEYS))
