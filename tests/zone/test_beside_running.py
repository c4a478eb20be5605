"""Commands beside the running services of two zones, as ``veen zone init`` makes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from zone_processes import RunningZone, running

from cli.zone_home import ZoneHome

Pair = tuple[RunningZone, RunningZone]


@pytest.fixture(scope="module")
def zones(
    tmp_path_factory: pytest.TempPathFactory, a_zone: Callable[..., ZoneHome]
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("beside")
    z1 = a_zone(folder / "z1")
    z2 = a_zone(folder / "z2", "offline", trust=z1.handover, medium=z1.root / "medium")
    with ExitStack() as closing:
        here, there = (closing.enter_context(running(one)) for one in (z1, z2))
        here.emit(6)
        here.emit(2, kind="login.failed", who="access")
        here.veen("recorder", "checkpoint", "create", *here.config)
        yield here, there


def payloads(file: Path) -> list[object]:
    lines = [json.loads(one) for one in file.read_text().splitlines()]
    return [one["payload"] for one in lines if one["kind"] == "event"]


@pytest.mark.parametrize("who", ["admin", "auditor"])
def test_h25_identities_replay_content_while_the_service_runs(
    zones: Pair, tmp_path: Path, who: str
) -> None:
    z1, _ = zones
    out = tmp_path / "replayed.jsonl"
    z1.veen(
        "recorder", "replay", *z1.config, "--stream", "record/app/http", "--out", out,
        "--client", z1.home.identity(who).root, "--principal", who,
    )  # fmt: skip
    assert payloads(out) == [{"n": n} for n in range(6)]


def test_h25_the_exporter_opens_events_while_the_service_runs(zones: Pair) -> None:
    z1, _ = zones
    medium = z1.home.root / "medium"
    z1.veen("bridge", "export", *z1.config, "--medium", medium)
    shown = z1.veen("bridge", "inspect", medium, "--json")
    assert "http.access" in shown
