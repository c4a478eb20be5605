"""One process of a zone by itself, as a container runs it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.errors import REFUSED
from hub import settings as hub_settings
from zone import config as zones
from zone.directory import ZoneHome

WAIT_SEC = 120.0
VEEN = [sys.executable, "-P", "-m", "cli.main", "zone"]


def ended(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*VEEN, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_SEC)


@pytest.fixture
def home(a_zone: Callable[..., ZoneHome], tmp_path: Path) -> ZoneHome:
    return a_zone(tmp_path / "zone", "alone")


@pytest.fixture
def hub(home: ZoneHome) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*VEEN, "run", "hub", "--directory", home.root])
    yield process
    process.terminate()
    assert process.wait(WAIT_SEC) == 0


def test_refuses_a_part_that_no_zone_has(home: ZoneHome) -> None:
    for word in ("run", "probe"):
        done = ended(word, "kitchen", "--directory", home.root)
        assert done.returncode == REFUSED
        assert "unknown part kitchen: expected one of hub, recorder, api-server" in done.stderr


def test_a_part_that_does_not_run_is_not_ready(home: ZoneHome) -> None:
    for part in ("hub", "recorder", "api-server", "triggerer"):
        done = ended("probe", part, "--directory", home.root)
        assert (done.returncode, done.stdout) == (REFUSED, f"{part} is not ready\n")


def test_a_hub_runs_by_itself_and_says_so(home: ZoneHome, hub: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_SEC
    while ended("probe", "hub", "--directory", home.root).returncode:
        assert hub.poll() is None
        assert time.monotonic() < deadline


def test_where_people_reach_a_zone_can_be_said(tmp_path: Path) -> None:
    where = ("--listen", "0.0.0.0", "--ports", "8080,8090,8081")
    done = ended("init", "--directory", tmp_path / "zone", "--name", "z1", *where)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "zone" / "veen.toml"
    assert zones.load(file).airflow.listen == "0.0.0.0:8081"
    assert hub_settings.load(file).url == "http://127.0.0.1:8080"
    for wrong in ("1,2", "1,1,2", "a,b,c"):
        refused = ended("init", "--directory", tmp_path / "z", "--name", "z", "--ports", wrong)
        assert refused.returncode == 1
        assert not (tmp_path / "z").exists()
