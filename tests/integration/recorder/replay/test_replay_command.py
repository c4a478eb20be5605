"""The command itself: what it prints, how it ends, and that killing it costs nothing."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.hub.hub_process import wait_until
from support.long_form import LONG
from support.paths import ROOT, SUPPORT


@pytest.fixture
def reader(recorded: Any, quick_path: Path) -> Path:
    """A reader who was never here before."""
    return Path(shutil.copytree(recorded.folder / "reader", quick_path / "reader"))


def veen(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "recorder", "replay", *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=120, cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_items_go_to_stdout_and_the_file_is_checked_offline(
    recorded: Any, reader: Path, quick_path: Path
) -> None:
    at = ("--hub", recorded.hub.url, "--client", reader)
    chosen = ("--checkpoint", recorded.folder / "checkpoint.cbor")
    result = veen(*at, *chosen, "--stream", "record/a", "--from", 2, "--to", 5)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["replay", *["event"] * 4]
    assert "4 messages, proven against checkpoint" in result.stderr

    out = quick_path / "out.cbor"
    written = veen(*at, *chosen, "--with-proofs", "--format", "cbor", "--out", out, "--json")
    assert written.returncode == 0, written.stderr
    assert json.loads(written.stdout)["messages"] == 24
    hub_id = recorded.checkpoint.hub_id.hex()
    alone = veen("--verify", out, "--hub-id", hub_id, *chosen, "--json")
    assert (alone.returncode, json.loads(alone.stdout)["hub_identity_known"]) == (6, False)
    pinned = ("--hub-id", hub_id, "--hub-identity", recorded.hub.data)
    checked = veen("--verify", out, *pinned, *chosen, "--json")
    assert (checked.returncode, json.loads(checked.stdout)["proven"]) == (0, 24)

    raw = bytearray(out.read_bytes())
    raw[-40] ^= 1
    out.write_bytes(raw)
    refused = veen("--verify", out, "--hub-id", hub_id)
    assert refused.returncode == 3
    assert "stream_seq" in refused.stderr or "byte" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--hub", "http://127.0.0.1:1", "--stream", "record/a"), "--hub needs --client"),
        (("--resume",), "need --out"),
        (("--format", "parquet", "--with-proofs", "--out", "x"), "Parquet output has no proofs"),
        (("--verify", "x", "--config", "nowhere.toml"), "--verify needs --hub-id"),
    ],
)
def test_refuses_what_does_not_go_together(arguments: tuple[object, ...], message: str) -> None:
    result = veen(*arguments)
    assert result.returncode == 1
    assert message in result.stderr


@pytest.mark.parametrize("form", ["jsonl", "cbor"])
def test_a_replay_killed_again_and_again_loses_and_doubles_nothing(
    recorded: Any, reader: Path, quick_path: Path, form: str
) -> None:
    checkpoint = recorded.folder / "checkpoint.cbor"

    def start(out: Path) -> subprocess.Popen[bytes]:
        where = map(str, (recorded.hub.url, reader, checkpoint, out, form))
        command = [sys.executable, str(SUPPORT / "recorder" / "replaying_process.py"), *where]
        return subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})

    undisturbed, out = quick_path / "undisturbed", quick_path / "out"
    assert start(undisturbed).wait(100) == 0
    size, chance = undisturbed.stat().st_size, random.Random(form)
    (reader / "state.json").unlink()
    for due in sorted(chance.randrange(size) for _ in range(20 if LONG else 3)):
        process = start(out)
        wait_until(
            partial(has_written, process, out, due),
            100,
            "so many bytes",
        )
        process.kill()
        process.wait()
    assert start(out).wait(100) == 0
    assert out.read_bytes() == undisturbed.read_bytes()


def has_written(process: subprocess.Popen[bytes], out: Path, size: int) -> bool:
    """Whether a process has ended, or its output has more bytes than that."""
    return process.poll() is not None or (out.exists() and out.stat().st_size > size)
