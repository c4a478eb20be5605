"""``veen bridge`` as an operator of the online zone types it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import bagit
import pytest

from bridge.exporter.gaps import ExportGap, GapFile
from support.hub.hub_process import veen

pytestmark = pytest.mark.e2e

CHANGES = "export/z1/changes"


def document(*arguments: object, code: int = 0) -> dict[str, Any]:
    run = veen("bridge", *arguments, "--json")
    assert run.returncode == code, run.stdout + run.stderr
    return dict(json.loads(run.stdout))


def tree(root: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def config(export_zone: Any, new_medium: Any) -> Path:
    export_zone.advance(new_medium())
    return Path(export_zone.toml())


def test_export_carry_verify(
    export_zone: Any, config: Path, new_medium: Any, tmp_path: Path
) -> None:
    medium, trust, text = new_medium(), tmp_path / "trust", tmp_path / "check.txt"
    assert "there are events to export" in document("status", "--config", config)["state"]
    done = document("export", "--config", config, "--medium", medium, "--medium-id", "USB-17")
    assert done["events"] >= 3
    assert done["carriers"][0]["stream"] == CHANGES
    again = veen("bridge", "export", "--config", config, "--medium", medium, "--stream", CHANGES)
    assert (again.returncode, again.stdout.strip()) == (6, "nothing to do")
    handed = document("keys", "export-trust", "--config", config, "--out", trust)
    assert handed["bridge_id"] == document("keys", "show", "--config", config)["bridge_id"]
    before = tree(medium)
    result = document("verify", medium, "--trust", trust, "--transcript", text)
    assert {item["verdict"] for item in result["carriers"]} == {"valid"}
    assert all(0 <= item["age_sec"] < 3600 for item in result["carriers"])
    (bag, *_) = done["carriers"][0]["bags"]
    for manifest in ("manifest-sha256.txt", "tagmanifest-sha256.txt"):
        subprocess.run(["sha256sum", "-c", "--strict", manifest], cwd=bag, check=True)
    bagit.Bag(bag).validate()
    assert text.read_text().startswith("Check of an AGB0 carrier\n")
    shown = document("inspect", medium, "--events", 1)
    assert shown["carriers"][0]["bundle"]["events"][0]["event_type"] is not None
    assert tree(medium) == before


def test_verify_needs_no_network_and_names_what_is_missing(
    export_zone: Any, config: Path, new_medium: Any, tmp_path: Path
) -> None:
    medium = new_medium()
    (done, *_) = document("export", "--config", config, "--medium", medium)["carriers"]
    volume = Path(done["bags"][0]) / "data" / "v001.agv"
    command = [sys.executable, "-m", "cli.main", "bridge", "verify", str(medium)]
    command += ["--trust", str(export_zone.folder / "trust")]
    assert in_empty_network(command).returncode == 0
    volume.unlink()
    refused = in_empty_network(command)
    assert refused.returncode == 3
    first = refused.stderr.splitlines()[0]
    assert first.startswith("veen: E.SIZE/INCOMPLETE")
    assert "v001.agv" in first


def in_empty_network(command: list[str]) -> subprocess.CompletedProcess[str]:
    """With no interface but a loopback that is down, where the system lets us."""
    apart = ["unshare", "--net"] if os.geteuid() == 0 and shutil.which("unshare") else []
    if apart and subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        apart = []
    return subprocess.run([*apart, *command], capture_output=True, text=True, check=False)


def test_x09_of_two_commands_at_once_each_carrier_is_entered_once(
    export_zone: Any, config: Path, new_medium: Any
) -> None:
    medium = new_medium()
    command = [sys.executable, "-m", "cli.main", "bridge", "export", "--config", str(config)]
    command += ["--medium", str(medium), "--medium-id", "one"]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    detail = [popen.communicate(timeout=120) for popen in both]
    codes = sorted(popen.returncode for popen in both)
    assert codes in ([0, 4], [0, 6]), detail
    entered = [success.bundle_id for success in export_zone.successes() if success.medium == "one"]
    assert len(entered) == len(set(entered)) > 0


def test_export_says_what_is_wrong_in_its_first_line(config: Path, new_medium: Any) -> None:
    run = veen("bridge", "export", "--config", config, "--medium", new_medium() / "nowhere")
    assert run.returncode != 0
    assert "nowhere" in run.stderr.splitlines()[0]
    run = veen("bridge", "export", "--config", config, "--medium", "/tmp", "--range", "export/z1=1")
    assert (run.returncode, "expected NAME=FROM..TO" in run.stderr) == (1, True)
    run = veen("bridge", "verify", new_medium())
    assert (run.returncode, "--trust is needed" in run.stderr) == (1, True)


@pytest.mark.parametrize(
    ("hub", "stream", "detail"),
    [
        ("11" * 32, CHANGES, "got those of hub 1111"),
        (None, "export/z1/secrets", "add it there if it should cross"),
    ],
)
def test_refuses_a_gap_file_about_something_else(
    export_zone: Any, new_medium: Any, tmp_path: Path, hub: str | None, stream: str, detail: str
) -> None:
    about = bytes.fromhex(hub) if hub else export_zone.identity().hub_id
    path, medium = tmp_path / "gaps.json", new_medium()
    path.write_bytes(GapFile.of(about, [ExportGap(stream, 1, 2)]).encode())
    where = ("--config", export_zone.toml(), "--medium", medium)
    run = veen("bridge", "export", *where, "--from-gap-file", path)
    assert run.returncode != 0
    assert detail in run.stderr.splitlines()[0]
    assert list(medium.iterdir()) == []


def test_i31_a_termination_ends_an_export_in_a_clear_line(export_zone: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = Path(export_zone.toml())
        port = silent.getsockname()[1]
        config.write_text(
            config.read_text().replace(export_zone.hub.url, f"http://127.0.0.1:{port}")
        )
        command = [sys.executable, "-m", "cli.main", "bridge", "export", "--config", str(config)]
        run = subprocess.Popen(
            [*command, "--medium", str(tmp_path)], stderr=subprocess.PIPE, text=True
        )
        silent.settimeout(120)
        with silent.accept()[0]:
            run.send_signal(signal.SIGTERM)
            _, detail = run.communicate(timeout=60)
    assert run.returncode == 130
    assert detail.splitlines()[0].startswith("stopped; what was begun does not count yet: run veen")
    assert "Traceback" not in detail


def test_trust_is_handed_over_pinned_and_revoked(
    export_zone: Any, config: Path, tmp_path: Path
) -> None:
    handed, trust = tmp_path / "handed", tmp_path / "trust"
    shown = document("keys", "export-trust", "--config", config, "--out", handed)
    pinned = document("keys", "pin", handed, "--trust", trust, "--operator", "ann")["pinned"]
    assert shown["hub_id"] in pinned[0]
    assert shown["bridge_id"] in pinned[1]
    assert document("keys", "pin", handed, "--trust", trust)["pinned"] == []
    revoked = ("keys", "revoke", shown["bridge_id"], "--trust", trust, "--reason", "stolen")
    assert document(*revoked)["revoked"] == shown["bridge_id"]
    again = veen("bridge", "keys", "pin", handed, "--trust", trust, "--name", "z1-2")
    assert (again.returncode, "is revoked" in again.stderr) == (3, True)
    changes = (trust / "changes.txt").read_text().splitlines()
    assert len(changes) == 3
    assert "Z ann: pinned hub" in changes[0]
    assert "revoked " + shown["bridge_id"] + ": stolen" in changes[2]
