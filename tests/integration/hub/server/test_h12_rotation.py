"""H12: the log of a running hub stays within its size, across all of its processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.hub import hub_process, spec_objects

MAX_BYTES, BACKUPS = 20_000, 2
TOML = f"""{hub_process.OPEN_TOML}
log_max_bytes = {MAX_BYTES}
log_backups = {BACKUPS}
"""
BATCHES, BATCH = 12, 20


def test_h12_a_running_hub_rotates_its_log(tmp_path: Path) -> None:
    with hub_process.hub_in(tmp_path, TOML) as hub:
        clients = [hub.client() for _ in range(4)]  # so that both workers are met
        for number, client in enumerate(clients):
            writer = client.writer(spec_objects.key(f"writer {number}"), f"record/{number}")
            for _ in range(BATCHES):
                client.submit_batch([writer.msg(b"x") for _ in range(BATCH)])
        assert hub.stop() == 0
    files = sorted(tmp_path.glob("hub.log*"))
    assert [file.name for file in files] == ["hub.log", "hub.log.1", "hub.log.2"]
    one_batch = 400 * BATCH
    assert all(file.stat().st_size < MAX_BYTES + 2 * one_batch for file in files)
    lines = [line for file in files for line in file.read_text().splitlines()]
    places = [_place(line) for line in lines if line.startswith("{")]
    assert len(places) == len(set(places)), "a line was written twice"
    assert BATCHES * BATCH in [seq for _, seq in places], "the last message has no line"


def _place(line: str) -> tuple[str, int]:
    document: dict[str, Any] = json.loads(line)
    return document["label"], document["stream_seq"]
