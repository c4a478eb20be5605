"""Every command of the runbook, run in its order against a real hub."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.free_port import free_port

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs" / "runbook.md"
_BOX = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def boxes() -> list[str]:
    return _BOX.findall(RUNBOOK.read_text())


class Site:
    """A hub, a recorder and a keeper in one folder, as the runbook takes them to be."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        (folder / "bin").mkdir()
        (folder / "work").mkdir()
        program = folder / "bin" / "veen"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cli.main "$@"\n')
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "VEEN_RECORDER": str(folder / "recorder.toml"),
            "HUB_DIR": str(folder / "hub"),
            "HUB_CONFIG": str(folder / "hub.toml"),
            "CHECKPOINTS": str(folder / "checkpoints"),
            "STORE": f"file://{folder}/store",
            "KEEPER": str(folder / "keeper"),
            "WORK": str(folder / "work"),
            "START": "1970-01-01T00:00:00Z",
            "END": "2100-01-01T00:00:00Z",
        }

    def run(self, script: str) -> str:
        """A box as a person would paste it; the first command that fails ends it."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def set_up(self) -> None:
        for one in ("client", "shop", "keeper"):
            self.run(f"veen keygen --insecure-plain --out {one}")
        me, shop = (
            json.loads(self.run(f"veen --json id show --client {one}"))["client_id"]
            for one in ("client", "shop")
        )
        (self.folder / "hub.toml").write_text(
            f'listen = "127.0.0.1:{self.port}"\nadmission = "open"\nworkers = 1\n'
            '[[streams]]\nname = "record/app/orders"\n'
            f'[[principals]]\nname = "recorder"\nrole = "recorder_admin"\npublic_key = "{me}"\n'
            'read = ["*"]\n'
        )
        self.run('veen hub start --data-dir "$HUB_DIR" --config "$HUB_CONFIG"')
        hub_id = json.loads(self.run('veen --json hub key --hub "$HUB_DIR"'))["hub_id"]
        (self.folder / "recorder.toml").write_text(
            f'zone = "plant-1"\nadmins = ["{me}"]\n'
            f'[hub]\nurl = "http://127.0.0.1:{self.port}"\nhub_id = "{hub_id}"\n'
            'client = "client"\nprincipal = "recorder"\nreader = "client/identity_card.pub"\n'
            '[[streams]]\nname = "record/app/orders"\nevent_types = ["order.placed"]\n'
            f'producers = ["{shop}"]\n'
        )
        self.emit(5)

    def emit(self, count: int) -> None:
        line = {"event_type": "order.placed", "subject_id": "u:7", "origin": "shop", "payload": {}}
        text = "".join(json.dumps(line | {"payload": {"n": n}}) + "\n" for n in range(count))
        (self.folder / "events.jsonl").write_text(text)
        self.run("veen recorder emit --file events.jsonl --client shop")

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (self.folder / "work" / name).read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["kind"] == "event"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:

    found = Site(tmp_path, free_port())
    try:
        found.set_up()
        yield found
    finally:
        subprocess.run(
            ["bash", "-c", 'veen hub stop --data-dir "$HUB_DIR"'],
            env=found.environment,
            check=False,
            capture_output=True,
            timeout=60,
        )


def test_the_runbook_states_every_variable_that_it_uses() -> None:
    used = set(re.findall(r"\$([A-Z_]+)", "".join(boxes()))) - {"SAFE"}
    stated = set(re.findall(r"`([A-Z_]+)`", RUNBOOK.read_text()))
    assert used <= stated


@pytest.mark.timeout(900)
def test_every_command_of_the_runbook_works_in_its_order(site: Site) -> None:
    now = datetime.fromtimestamp(time.time() + 3600, UTC)
    site.environment["END"] = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    for number, box in enumerate(boxes()):
        if "--unproven" in box:
            site.emit(2)
        said = site.run(box)
        if number == 0:
            assert (site.folder / "work" / "now.cbor").exists()
        assert said.strip()
    for name in ("safe.jsonl", "incident.jsonl"):
        found = site.events(name)
        assert [one["hub_commit_seq"] for one in found] == [1, 2, 3, 4, 5]
        assert all(one["proven"] for one in found)
    assert [one["proven"] for one in site.events("all.jsonl")] == [True] * 5 + [False] * 2
