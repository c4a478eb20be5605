"""A rotating log file is followed under kill -9: no line is lost, none is doubled."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.long_form import LONG
from support.paths import SUPPORT
from support.recorder import recorder_world

SCRIPT = SUPPORT / "recorder" / "tail_process.py"
KILLS, LONGER = 20, 10


class Writer(threading.Thread):
    """Writes numbered lines, in pieces, and rotates the file by the rule it is given."""

    def __init__(self, path: Path, rule: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.written = 0
        self._rotations = 0
        self._rule = rule
        self._chance = random.Random(seed)
        self._stop_it = threading.Event()
        self._file = path.open("ab", buffering=0)

    def run(self) -> None:
        while not self._stop_it.wait(self._chance.uniform(0, 0.02)):
            self._write()
            if self._chance.random() < 0.03:
                self._rotate()

    def end(self) -> None:
        self._stop_it.set()
        self.join()
        self._file.close()

    def _write(self) -> None:
        raw = b""
        for _ in range(self._chance.randint(1, 4)):
            kind = self._chance.choice(("order.placed", "log.line"))
            line = {"event_type": kind, "subject_id": "u", "origin": "o", "n": self.written}
            raw += json.dumps(line | {"fill": "x" * self._chance.randint(0, 300)}).encode() + b"\n"
            self.written += 1
        at = self._chance.randint(0, len(raw))
        self._file.write(raw[:at])
        self._file.write(raw[at:])

    def _rotate(self) -> None:
        if self._rule == "copytruncate":
            self._shift()
            shutil.copyfile(self.path, self._named(1))
            os.truncate(self.path, 0)
            return
        self._file.close()
        if self._rule == "dated":
            self.path.rename(self.path.with_name(f"{self.path.name}-{time.time_ns()}"))
        else:
            self._shift()
            self.path.rename(self._named(1))
        self._file = self.path.open("ab", buffering=0)

    def _shift(self) -> None:
        for number in range(self._rotations, 0, -1):
            self._named(number).rename(self._named(number + 1))
        self._rotations += 1

    def _named(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


class Zygote:
    """Starts tails on one file."""

    def __init__(self, *arguments: Path) -> None:
        command = [sys.executable, str(SCRIPT), *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.stored = 0

    def start(self, *words: object) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return int(self._word("child"))

    def follow(self, count: int) -> None:
        """Until so many more times some events were kept."""
        for _ in range(count):
            self._word("kept")

    def wait(self) -> int:
        return int(self._word("dead"))

    def close(self) -> None:
        self._process.communicate()

    def _word(self, requested: str) -> str:
        assert self._process.stdout is not None
        while True:
            result, value = self._process.stdout.readline().split()
            self.stored += int(value) if result == "kept" else 0
            if result == requested:
                return value
            assert result == "kept"


@pytest.fixture
def folder(emit_world: Any, tmp_path: Path) -> Path:
    """A configuration, and a capability that the hub knows."""
    document = emit_world.document()
    hub = document["hub"] | {
        "client": str(emit_world.folder / "producer"),
        "reader": str(emit_world.folder / "admin" / "identity_card.pub"),
    }
    rows = [f'zone = "{document["zone"]}"', f"admins = {json.dumps(document['admins'])}", "[hub]"]
    rows += [f"{key} = {json.dumps(value)}" for key, value in hub.items()]
    for stream in document["streams"]:
        rows += ["[[streams]]", *(f"{key} = {json.dumps(value)}" for key, value in stream.items())]
    (tmp_path / "recorder.toml").write_text("\n".join(rows))
    with emit_world.emitter():
        token = emit_world.token("producer", emit_world.settings())
        (tmp_path / "cap").write_bytes(token.encode())
    return tmp_path


@pytest.fixture
def zygote(folder: Path) -> Iterator[Zygote]:
    result = Zygote(folder / "recorder.toml", folder / "cap", folder / "app.log")
    yield result
    result.close()


@pytest.fixture
def counts(emit_world: Any) -> dict[str, int]:
    return {
        name: len(emit_world.events(name)) for name in (recorder_world.ORDERS, recorder_world.LOGS)
    }


def verify(world: Any, counts: dict[str, int], written: int) -> None:
    """Every number once, and in each stream in the order of the file."""
    numbers = []
    for name, before in counts.items():
        result = [event.value()["n"] for event in world.events(name)[before:]]
        assert result == sorted(result)
        numbers += result
    assert sorted(numbers) == list(range(written))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rule", ["numbered", "dated", "copytruncate"])
def test_no_line_is_lost_or_doubled(
    rule: str, emit_world: Any, zygote: Zygote, folder: Path, counts: dict[str, int]
) -> None:
    chance = random.Random(7)
    writer = Writer(folder / "app.log", rule, 11)
    kills = KILLS * (LONGER if LONG else 1)
    writer._write()
    zygote.start("once")
    assert zygote.wait() == 0
    # What is written between copy and truncation is lost by the rule itself: there, none is.
    if rule != "copytruncate":
        writer.start()
    for _ in range(kills):
        if rule == "copytruncate":
            writer._write()
            writer._rotate()
            writer._write()
        child = zygote.start("follow")
        zygote.follow(chance.choice((0, 1, 1, 1, 1 if rule == "copytruncate" else 2)))
        time.sleep(chance.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        assert zygote.wait() == -signal.SIGKILL
    assert zygote.stored > kills, "the tails that were killed got nowhere"
    if rule == "copytruncate":
        writer._file.close()
    else:
        writer.end()
    zygote.start("once")
    assert zygote.wait() == 0
    assert writer.written > kills
    assert len(list(folder.glob("app.log*"))) > 5
    verify(emit_world, counts, writer.written)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_tail_that_dies_at_a_step_neither_loses_nor_doubles(
    when: str, emit_world: Any, zygote: Zygote, folder: Path, counts: dict[str, int]
) -> None:
    writer = Writer(folder / "app.log", "numbered", 13)
    zygote.start("once")
    assert zygote.wait() == 0
    for method in ("add", "journal", "settle"):
        for turns in (1, 2):
            writer._write()
            writer._rotate()
            writer._write()
            zygote.start("follow", method, when, turns)
            assert zygote.wait() == -signal.SIGKILL
    writer._file.close()
    zygote.start("once")
    assert zygote.wait() == 0
    verify(emit_world, counts, writer.written)
