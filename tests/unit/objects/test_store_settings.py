"""Settings of a store, how it is opened, and how long it waits between attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen.objects.port import (
    Addressing,
    BadStoreSettings,
    FileSettings,
    S3Settings,
    StoreRefused,
    settings_of,
)
from veen.objects.s3 import Retries, Transient
from veen.objects.store import open_retention, open_store


def test_reads_the_url_of_a_directory() -> None:
    assert settings_of("file:///var/lib/veen%20archive") == FileSettings(
        Path("/var/lib/veen archive")
    )


def test_reads_the_url_of_a_bucket() -> None:
    settings = settings_of(
        "s3://archive/z1/hub",
        endpoint="https://objects.example",
        region="eu-west-1",
        addressing="path",
        accept_overwriting_store=True,
    )
    assert settings == S3Settings(
        bucket="archive",
        prefix="z1/hub/",
        endpoint="https://objects.example",
        region="eu-west-1",
        addressing=Addressing.PATH,
        accept_overwriting_store=True,
    )
    assert settings_of("s3://archive") == S3Settings(bucket="archive")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/var/lib/veen",
        "ftp://host/path",
        "file://relative",
        "file://other-host/path",
        "s3://",
        "s3:///prefix",
        "s3://key:secret@bucket/prefix",
        "s3://bucket/a//b",
        "s3://bucket/../b",
        "s3://bucket/" + "x" * 101,
        "s3://bucket/?endpoint=x",
    ],
)
def test_refuses_what_names_no_store(url: str) -> None:
    with pytest.raises(BadStoreSettings):
        settings_of(url)


def test_refuses_other_bad_settings() -> None:
    with pytest.raises(BadStoreSettings, match="addressing"):
        settings_of("s3://bucket", addressing="dns")
    with pytest.raises(BadStoreSettings, match="endpoint"):
        settings_of("s3://bucket", endpoint="objects.example")
    for name in ("attempts", "timeout_seconds", "page_keys"):
        with pytest.raises(BadStoreSettings, match="above zero"):
            S3Settings(**{"bucket": "b", name: 0})  # type: ignore[arg-type]


def test_a_bucket_is_not_opened_without_credentials() -> None:
    settings = S3Settings(bucket="archive", endpoint="http://127.0.0.1:1")
    with pytest.raises(StoreRefused, match="access key"):
        open_store(settings)
    with pytest.raises(StoreRefused, match="access key"):
        open_retention(settings)


def test_a_directory_has_nothing_to_warn_of(tmp_path: Path) -> None:
    status = open_store(FileSettings(tmp_path / "store")).status
    assert (status.kind, status.url) == ("directory", f"file://{tmp_path}/store")
    assert status.keeps_conditions
    assert status.warnings == ()


def failing(times: int) -> tuple[Retries, list[float], list[int]]:
    waited: list[float] = []
    retries = Retries(attempts=8, first_pause=0.1, longest_pause=2.0, wait=waited.append)
    return retries, waited, [times]


def test_waits_twice_as_long_each_time_up_to_a_bound() -> None:
    retries, waited, _ = failing(0)

    def always() -> None:
        raise Transient("no")

    with pytest.raises(Transient):
        retries.run("test", always)
    bounds = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert len(waited) == len(bounds)
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(waited, bounds, strict=True))


def test_stops_trying_when_it_went_well() -> None:
    retries, waited, left = failing(3)

    def attempt() -> str:
        if left[0]:
            left[0] -= 1
            raise Transient("no")
        return "done"

    assert retries.run("test", attempt) == "done"
    assert len(waited) == 3


def test_does_not_try_again_what_was_refused() -> None:
    retries, waited, _ = failing(0)

    def refused() -> None:
        raise StoreRefused("no")

    with pytest.raises(StoreRefused):
        retries.run("test", refused)
    assert waited == []
