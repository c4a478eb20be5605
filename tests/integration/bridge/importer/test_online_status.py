"""``veen bridge status`` of the exporting side, whose hub does not answer or whose identity is in
use: what is known here is shown all the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bridge.exporter.state import ExportState
from support.bridge import bridge_world
from veen.keystore.directory import ClientDir, ClientDirLock

NETWORK, REFUSED = 2, 4


@pytest.fixture
def online(tmp_path: Path) -> Path:
    """Settings of an online zone that has exported once; nobody listens at its hub's address."""
    for name in ("bridge", "audit"):
        home = ClientDir(tmp_path / name)
        home.create(now=int(time.time()), random=os.urandom, passphrase=None)
    state = ExportState(tmp_path / "export")
    (tmp_path / "export" / "staging" / "left").mkdir(parents=True)
    item = bridge_world.World().grow(3)
    state.store_checkpoint(item.checkpoint(3))
    path = tmp_path / "bridge.toml"
    path.write_text(f"""
zone = "online"
name = "z1"
[hub]
url = "http://127.0.0.1:9"
hub_id = "{item.hub_id.hex()}"
[bridge]
client = "bridge"
[audit]
client = "audit"
reader = "bridge/identity_card.pub"
[export]
state = "export"
[[streams]]
source = "{item.stream}"
""")
    return path


def status(config: Path) -> tuple[int, Any]:
    command = [sys.executable, "-m", "cli.main", "bridge", "status", "--json", "--config"]
    run = subprocess.run(
        [*command, str(config)], capture_output=True, text=True, check=False, timeout=120
    )
    return run.returncode, json.loads(run.stdout)


def test_with_the_hub_down_what_is_known_here_is_shown(online: Path) -> None:
    code, result = status(online)
    assert code == NETWORK
    assert "the hub could not be asked" in result["state"]
    assert result["audit_pending"] == 0
    assert [Path(item).name for item in result["in_staging"]] == ["left"]
    streams = {item["stream"]: item for item in result["streams"]}
    assert streams[bridge_world.STREAM]["checkpointed"] == 3
    assert streams[bridge_world.STREAM]["exported"] is None


def test_while_an_export_runs_what_is_known_here_is_shown(online: Path) -> None:
    lock = ClientDirLock(ClientDir(online.parent / "audit"))
    try:
        code, result = status(online)
    finally:
        lock.release()
    assert code == REFUSED
    assert result["audit_pending"] is None
    assert result["in_staging"]
