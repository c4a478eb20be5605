"""H32: a full disk is told by readiness, log, metrics and commands, and warned of in time."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub import disk
from hub.disk import DAY_SEC, DiskRules, DiskSpace, DiskWatch, Sample, days_left
from hub.storage.datadir import DataDir
from support.hub import spec_objects

NOW = 1_900_000_000
RULES = DiskRules(reserve_bytes=1_000, warn_days=14)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A data directory on a volume of its own, of 8 MiB."""
    path = tmp_path / "hub" / "data"
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a file system here")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_h32_a_full_disk_is_reported_everywhere_and_passes(
    volume: Path, make_hub: Callable[..., Any], run_veen: Callable[..., Any], wait_until: Any
) -> None:
    toml = 'admission = "open"\nreads = "open"\ndisk_reserve_bytes = 0\n'
    hub = make_hub(toml=toml).start()
    client = hub.client()
    writer = client.writer(spec_objects.key("alice"), "record/a")
    client.submit_batch([writer.msg(b"first")])
    filler = volume / "filler"
    _fill(filler)
    large = writer.msg(os.urandom(200_000))
    for _ in range(3):
        (refused,) = client.submit_batch([large])
        assert refused.reason.startswith("E.UNAVAILABLE")
    ready = httpx.get(f"{hub.url}/readyz", trust_env=False)
    assert (ready.status_code, ready.json()["code"]) == (503, "E.UNAVAILABLE")
    assert "the disk is full" in ready.json()["message"]
    assert hub.log.read_text().count(" is full: messages are refused") == 1
    health = run_veen("hub", "health", "--hub", hub.url, "--json")
    assert health.returncode == 4
    document = json.loads(health.stdout)
    assert (document["ok"], document["ready"]) == (False, False)
    assert "the disk is full" in document["not_ready"]
    assert (
        json.loads(run_veen("hub", "status", "--hub", hub.url, "--json").stdout)["ready"] is False
    )
    assert _free(hub) < 1 << 20
    filler.unlink()
    wait_until(hub.is_ready, 20, "a hub that found room by itself")
    (receipt,) = client.submit_batch([large])
    assert isinstance(receipt, list)
    assert _free(hub) > 4 << 20
    assert hub.log.read_text().count("has free space again") == 1
    document = json.loads(run_veen("hub", "health", "--hub", hub.url, "--json").stdout)
    assert (document["ok"], document["ready"], "not_ready" in document) == (True, True, False)
    assert document["disk_free_bytes"] > 4 << 20


def _fill(file: Path) -> None:
    """To the last byte."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(handle, bytes(1 << 16)):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(handle)


def _free(hub: Any) -> float:
    text = httpx.get(f"{hub.url}/metrics", trust_env=False).text
    line = next(line for line in text.splitlines() if line.startswith("veen_disk_free_bytes "))
    return float(line.rpartition(" ")[2])


def test_h32_the_rate_of_a_day_says_how_many_days_are_left() -> None:
    assert days_left([Sample(NOW - DAY_SEC, 1_100), Sample(NOW, 1_000)], NOW) == 10
    assert days_left([Sample(NOW - DAY_SEC // 2, 1_100), Sample(NOW, 1_000)], NOW) == 5
    older = Sample(NOW - 2 * DAY_SEC, 9_000_000)
    later = Sample(NOW + 1, 1)
    assert days_left([older, Sample(NOW - DAY_SEC, 1_100), Sample(NOW, 1_000), later], NOW) == 10


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [Sample(NOW, 1_000)],
        [Sample(NOW - 60, 2_000), Sample(NOW, 1_000)],
        [Sample(NOW - DAY_SEC, 1_000), Sample(NOW, 1_000)],
        [Sample(NOW - DAY_SEC, 1_000), Sample(NOW, 2_000)],
    ],
    ids=["nothing", "one", "too short", "steady", "growing"],
)
def test_h32_what_is_not_known_is_no_number(samples: list[Sample]) -> None:
    assert days_left(samples, NOW) is None


def test_h32_too_little_is_refused_and_soon_too_little_is_warned_of() -> None:
    assert "disk_reserve_bytes" in (DiskSpace(999, None, None).shortage(RULES) or "")
    assert DiskSpace(1_000, None, None).shortage(RULES) is None
    assert "no free inode" in (DiskSpace(1_000, 0, None).shortage(RULES) or "")
    assert "full in 13.5 days" in (DiskSpace(5_000, 7, 13.5).warning(RULES) or "")
    assert DiskSpace(5_000, 7, 14.0).warning(RULES) is None
    assert DiskSpace(5_000, 7, None).warning(RULES) is None


def test_h32_samples_survive_a_restart_and_damage(tmp_path: Path) -> None:
    datadir = DataDir(tmp_path)
    datadir.create()
    for hour in range(30):
        DiskWatch(datadir).tick(NOW + 3_600 * hour)
    file = tmp_path / "run" / "disk.json"
    document = json.loads(file.read_text())
    assert [at for at, _ in document] == [NOW + 3_600 * hour for hour in range(5, 30)]
    now = document[-1][0]
    free = disk.disk_space(datadir, now).free_bytes
    file.write_text(json.dumps([[now - DAY_SEC, free * 2]]))
    assert disk.disk_space(datadir, now).days_left == pytest.approx(1, rel=0.1)
    for damage in ("", "[", '[["a"]]', "[1]", "{}"):
        file.write_text(damage)
        assert disk.disk_space(datadir, now).days_left is None
    DiskWatch(datadir).tick(now)
    assert len(json.loads(file.read_text())) == 1


def test_h32_readiness_keeps_a_reserve_and_carries_the_warning(
    make_hub: Callable[..., Any], run_veen: Callable[..., Any], wait_until: Any
) -> None:
    toml = 'admission = "open"\nreads = "open"\ndisk_warn_days = 100000\n'
    hub = make_hub(toml=toml).start()
    free = os.statvfs(hub.data).f_bavail * os.statvfs(hub.data).f_frsize
    (hub.data / "run" / "disk.json").write_text(
        json.dumps([[int(time.time()) - DAY_SEC + 60, free * 2]])
    )
    result = httpx.get(f"{hub.url}/readyz", trust_env=False).json()
    assert result["ok"] is True
    assert "at the rate of the last day" in result["warnings"][0]
    text = run_veen("hub", "health", "--hub", hub.url).stdout
    assert "disk_days_left: " in text
    assert "free disk space" in text
    assert hub.stop() == 0
    (hub.data.parent / "hub.toml").write_text(toml + f"disk_reserve_bytes = {1 << 60}\n")
    hub.launch()
    wait_until(lambda: _status(hub) == 200, 60, "a hub that answers though it is not ready")
    reply = httpx.get(f"{hub.url}/readyz", trust_env=False)
    assert reply.status_code == 503
    assert "disk_reserve_bytes" in reply.text


def _status(hub: Any) -> int | None:
    try:
        return httpx.get(f"{hub.url}/tooling/status", trust_env=False).status_code
    except httpx.HTTPError:
        return None
