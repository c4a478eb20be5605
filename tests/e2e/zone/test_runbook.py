"""Every command of the runbook about the recorder, in its order, beside a running zone (H34)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT
from support.zone.zone_processes import RunningZone, make_zone, running
from veen.keystore.directory import ClientDir, ClientDirLock, Locked
from zone.people import HTTP

RUNBOOK = ROOT / "docs" / "runbook.md"
_BOX = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def boxes() -> list[str]:
    return _BOX.findall(RUNBOOK.read_text())


@pytest.fixture
def zone(tmp_path: Path) -> Iterator[RunningZone]:
    with running(make_zone(tmp_path / "z1")) as result:
        result.emit(5)
        yield result


def variables(zone: RunningZone) -> dict[str, str]:
    home, later = zone.home, datetime.fromtimestamp(time.time() + 3600, UTC)
    return {
        "VEEN_RECORDER": str(home.file),
        "HUB_DIR": str(home.hub),
        "HUB_CONFIG": str(home.file),
        "CHECKPOINTS": str(home.root / "checkpoints"),
        "STORE": (home.root / "objects").as_uri(),
        "KEEPER": str(home.identity("keeper").root),
        "READER": str(home.identity("reader").root),
        "STREAM": HTTP,
        "START": "1970-01-01T00:00:00Z",
        "END": f"{later:%Y-%m-%dT%H:%M:%SZ}",
    }


def events(file: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in lines if line["kind"] == "event" and line["stream"] == HTTP]


def is_held(client: ClientDir) -> bool:
    try:
        ClientDirLock(client).release()
    except Locked:
        return True
    return False


def test_the_runbook_states_every_variable_that_it_uses() -> None:
    used = set(re.findall(r"\$([A-Z_]+)", "".join(boxes()))) - {"SAFE"}
    stated = set(re.findall(r"`([A-Z_]+)`", RUNBOOK.read_text()))
    assert used <= stated


@pytest.mark.timeout(900)
def test_h34_every_command_of_the_runbook_works_beside_a_running_zone(
    zone: RunningZone, tmp_path: Path
) -> None:
    work, given = tmp_path / "work", variables(zone)
    work.mkdir()
    for number, box in enumerate(boxes()):
        if "--unproven" in box:
            zone.emit(2)
        assert is_held(zone.home.identity("service")), "the query service has ended"
        assert zone.script(box, work, **given).strip()
        if number == 0:
            assert (work / "now.cbor").exists()
    for name in ("safe.jsonl", "incident.jsonl"):
        result = events(work / name)
        assert [item["payload"]["n"] for item in result] == [0, 1, 2, 3, 4]
        assert all(item["proven"] for item in result)
    assert [event["proven"] for event in events(work / "all.jsonl")] == [True] * 5 + [False] * 2


def test_h34_an_identity_that_is_held_names_its_holder_and_what_to_do(zone: RunningZone) -> None:
    service = zone.home.identity("service").root
    words = ("recorder", "checkpoint", "create", *zone.config, "--client", service)
    result = zone.run(*words, "--principal", "service")
    assert result.returncode != 0
    assert "is in use by process" in result.stderr
    assert "(service" in result.stderr
    assert "act as another one (--client DIR)" in result.stderr
    assert "end it" not in result.stderr
