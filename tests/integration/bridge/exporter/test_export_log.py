"""The exporter reads only what is new of its audit log, and notices when the past is another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.exporter.build import RolledBack
from bridge.exporter.state import ExportLog
from veen.client.client import Client

CHANGES, LOG = "export/z1/changes", "bridge/online/log"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From which entry on the log is read, each time it is."""
    result: list[int] = []
    real = Client.read

    def read(client: Client, stream: str, **requested: Any) -> Any:
        if stream == LOG:
            result.append(requested["from_seq"])
        return real(client, stream, **requested)

    monkeypatch.setattr(Client, "read", read)
    return result


def read(zone: Any, folder: Path) -> Any:
    with zone.client("bridge") as client:
        return ExportLog(folder).read(client)


def test_only_what_is_new_is_read(
    fresh: Any, new_medium: Callable[[], Path], tmp_path: Path, asked: list[int]
) -> None:
    first = read(fresh, tmp_path)
    fresh.export(new_medium())
    del asked[:]
    second = read(fresh, tmp_path)
    assert second[: len(first)] == first
    assert len(second) > len(first)
    assert min(asked) == first[-1].seq
    assert list(second) == fresh.log()
    del asked[:]
    assert read(fresh, tmp_path) == second
    assert min(asked) == second[-1].seq


@pytest.mark.parametrize("damage", ["cut", "flipped", "headless", "longer"])
def test_what_is_damaged_is_read_again(fresh: Any, tmp_path: Path, damage: str) -> None:
    due = read(fresh, tmp_path)
    lines, head = tmp_path / "log.jsonl", tmp_path / "log.head"
    raw = lines.read_bytes()
    if damage == "cut":
        lines.write_bytes(raw[:-9])
    elif damage == "flipped":
        lines.write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
    elif damage == "longer":
        # A run that ended before the head counted what it had added.
        lines.write_bytes(raw + raw[:40])
    else:
        head.write_bytes(b"{")
    assert read(fresh, tmp_path) == due
    fresh.checkpoint()
    assert read(fresh, tmp_path) == due


def test_x11_a_log_with_another_past_is_refused(fresh: Any, tmp_path: Path) -> None:
    read(fresh, tmp_path)
    head = json.loads((tmp_path / "log.head").read_bytes())
    (tmp_path / "log.head").write_text(json.dumps(head | {"root": "11" * 32}))
    with pytest.raises(RolledBack, match="the hub signed two histories"):
        read(fresh, tmp_path)
