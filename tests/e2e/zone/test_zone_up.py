"""A zone with a real Airflow on PostgreSQL: up, looked at, down, up again with all it knew."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from cli.demo.zones import AirflowApi
from hub import settings as hub_settings
from support.paths import ROOT
from veen.errors import Refused
from veen.system.child_process import Born
from zone import state as states
from zone.directory import ZoneHome
from zone.run import stop
from zone.services import HUB, POSTGRES, RECORDER

MakeZone = Callable[..., ZoneHome]
WAIT_SEC = 600.0
QUIET = {
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
}


@pytest.fixture(scope="module")
def home(a_zone: MakeZone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZoneHome]:
    # H29: characters that mean something in a URL.
    zone = a_zone(tmp_path_factory.mktemp("up+&") / "z1")
    yield zone
    stop(zone)


def veen(home: ZoneHome, *words: str | Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cli.main", *map(str, words), "--json"],
        env={**_environ(), **QUIET}, capture_output=True, check=False, timeout=WAIT_SEC,
    )  # fmt: skip
    assert done.returncode == 0, (words, done.stdout, done.stderr, _logs(home))
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _environ() -> dict[str, str]:
    return dict(psutil.Process().environ())


def _logs(home: ZoneHome) -> str:
    return (home.logs / "supervisor.log").read_text()[-2000:] if home.logs.exists() else ""


def listening(home: ZoneHome) -> set[str]:
    """Addresses on which any process of the zone listens."""
    supervisor = states.read(home).supervisor
    assert supervisor is not None
    family = psutil.Process(supervisor.pid).children(recursive=True)
    return {
        net_connection.laddr.ip
        for process in family
        for net_connection in process.net_connections("tcp")
        if net_connection.status == psutil.CONN_LISTEN
    }


def commands_of(target: str, folder: str) -> list[str]:
    """What ``make`` would run of ours."""
    words = ["make", "--dry-run", "--no-print-directory", target, f"DIR={folder}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.replace("\\\n", "").splitlines()
    return [" ".join(line.split()) for line in lines if "/veen " in line]


def test_make_up_and_down_run_these_commands() -> None:
    item, two, up = commands_of("up", "d")
    init = ".venv/bin/veen zone init --directory"
    assert item.endswith(f"{init} d/z1 --name z1 --role online --medium d/medium")
    trusting = "--role offline --trust d/z1/handover --medium d/medium"
    assert two.endswith(f"{init} d/z2 --name z2 {trusting}")
    assert up == ".venv/bin/veen zone up --directory d"
    assert commands_of("down", "d") == [".venv/bin/veen zone down --directory d"]


@pytest.mark.timeout(1_500)
def test_a_zone_goes_up_and_down_and_up_again(home: ZoneHome) -> None:
    first = veen(home, "zone", "up", "--directory", home.root)["zones"][0]
    _looks_healthy(home)
    _people_may_what_they_may(home, first["passwords"])
    _emit(home)
    _parts_are_killed_and_recording_goes_on(home)
    _the_hub_is_stopped_and_started_by_hand(home)
    emitted = _emit(home)
    before = states.read(home)
    assert veen(home, "zone", "down", "--directory", home.root)["stopped"] == {"z1": True}
    assert not any(running.process.is_alive() for running in before.running)
    assert veen(home, "zone", "down", "--directory", home.root)["stopped"] == {"z1": False}
    assert veen(home, "zone", "status", "--directory", home.root)["zones"][0]["stage"] == "down"
    again = veen(home, "zone", "up", "--directory", home.root)["zones"][0]
    assert "passwords" not in again
    assert {key: again[key] for key in ("airflow", "hub", "query")} == {
        key: first[key] for key in ("airflow", "hub", "query")
    }
    assert _head(home) == emitted
    assert veen(home, "zone", "down", "--directory", home.root)["stopped"] == {"z1": True}


def _looks_healthy(home: ZoneHome) -> None:
    result = veen(home, "zone", "status", "--directory", home.root)["zones"][0]
    assert (result["stage"], result["wrong"]) == ("up", [])
    assert [item["name"] for item in result["processes"]] == [
        "hub", "recorder", "postgres", "api-server", "scheduler", "dag-processor", "triggerer",
    ]  # fmt: skip
    assert not any(item["restarts"] or item["failing"] for item in result["processes"])
    assert listening(home) == {"127.0.0.1"}


def _parts_are_killed_and_recording_goes_on(home: ZoneHome) -> None:
    """H23: an event is recorded while each part in turn is dead; what was killed comes back."""
    result = {running.name: running.process for running in states.read(home).running}
    # The database last: without it the parts of Airflow end by themselves.
    first = {name: result[name] for name in sorted(result, key=lambda item: item == POSTGRES)}
    for name, process in first.items():
        before = _process(home, HUB)
        process.send(signal.SIGKILL)
        if name == HUB:
            _wait(partial(_is_back, home, HUB, before))
        _emit(home)
        if name != HUB:
            assert _process(home, HUB) == before
        if name == RECORDER:
            _wait(partial(_is_back, home, RECORDER, process))
        elif name != HUB:
            assert _process(home, RECORDER).is_alive()
    for name, process in first.items():
        _wait(partial(_is_back, home, name, process))
    status = veen(home, "zone", "status", "--directory", home.root)["zones"][0]
    assert (status["stage"], status["wrong"]) == ("up", [])
    assert all(item["restarts"] >= 1 and not item["failing"] for item in status["processes"])
    text = httpx.get(f"{hub_settings.load(home.file).url}/metrics").text
    assert 'veen_zone_part_up{part="scheduler"} 1.0' in text
    assert re.search(r'veen_zone_part_restarts_total\{part="scheduler"\} [1-9]', text)
    assert 'veen_zone_part_failing{part="scheduler"} 0.0' in text


def _process(home: ZoneHome, name: str) -> Born:
    return next(running.process for running in states.read(home).running if running.name == name)


def _is_back(home: ZoneHome, name: str, old: Born) -> bool:
    return any(
        running.is_ready and running.process != old and running.process.is_alive()
        for running in states.read(home).running
        if running.name == name
    )


def _wait(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SEC
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _the_hub_is_stopped_and_started_by_hand(home: ZoneHome) -> None:
    """H34: as the runbook has it, beside the running zone, which stays up."""
    at = ("--data-dir", home.hub)
    veen(home, "hub", "stop", *at)
    veen(home, "hub", "verify", *at, "--config", home.file)
    veen(home, "hub", "start", *at, "--config", home.file)
    result = veen(home, "zone", "status", "--directory", home.root)["zones"][0]
    assert (result["stage"], result["wrong"]) == ("up", [])
    assert not home.resting.exists()


def _people_may_what_they_may(home: ZoneHome, passwords: dict[str, str]) -> None:
    url = home.zone().airflow.url
    assert set(passwords) == {"admin", "operator", "viewer"}
    with pytest.raises(Refused, match="401"):
        AirflowApi(url, "operator", "wrong")
    operator = AirflowApi(url, "operator", passwords["operator"])
    viewer = AirflowApi(url, "viewer", passwords["viewer"])
    operator.await_dags({"veen_checkpoint", "veen_export"}, WAIT_SEC)
    assert operator.ask("GET", "/api/v2/importErrors")["total_entries"] == 0
    refused = viewer.reply("PATCH", "/api/v2/dags/veen_export", {"is_paused": True})
    assert refused.status_code == httpx.codes.FORBIDDEN
    for item in (operator, viewer):
        item.close()


def _emit(home: ZoneHome) -> int:
    who = ("--client", home.identity("gateway").root, "--cap", home.capability("gateway"))
    event = ("--type", "http.access", "--subject", "user:1", "--origin", "shop")
    result = veen(
        home, "recorder", "emit", "--config", home.file, *who, *event, "--payload", '{"n": 1}'
    )
    return int(result["stream_seq"])


def _head(home: ZoneHome) -> int:
    who = ("--client", home.identity("admin").root, "--principal", "admin")
    result = veen(home, "recorder", "checkpoint", "create", "--config", home.file, *who)
    answer: int = next(
        item["last_seq"] for item in result["streams"] if item["name"] == "record/app/http"
    )
    return answer
