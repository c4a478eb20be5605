"""Many processes on one store: races have one winner, and a killed writer leaves nothing half."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time

from support.long_form import LONG
from support.objects.object_worker import content
from support.paths import SUPPORT
from veen.objects.port import FileSettings, Store, StoreSettings

SCRIPT = SUPPORT / "objects" / "object_worker.py"


def start(settings: StoreSettings, what: str, number: int, count: int) -> subprocess.Popen[str]:
    if isinstance(settings, FileSettings):
        place = [str(settings.root)]
    else:
        place = [settings.prefix, str(settings.endpoint)]
    return subprocess.Popen(
        [sys.executable, SCRIPT, what, str(number), str(count), *place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line_of(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline()


def release(workers: list[subprocess.Popen[str]]) -> None:
    """Let all go on once all are ready."""
    for worker in workers:
        assert line_of(worker) == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()


def test_of_processes_that_race_one_wins_the_key_and_one_moves_the_head(
    store_settings: StoreSettings, store: Store
) -> None:
    rounds, everyone = 200 if LONG else 12, range(4)
    workers = [start(store_settings, "race", number, rounds) for number in everyone]
    moved = []
    for turn in range(rounds):
        release(workers)
        answers = [json.loads(line_of(worker)) for worker in workers]
        (winner,) = (number for number in everyone if answers[number][0])
        assert store.objects.get(f"other/{turn}") == f"by {winner}".encode() * 5_000
        assert store.objects.get(f"same/{turn}") == b"same" * 5_000
        moved += [str(number) for number in everyone if answers[number][1]]
        assert (store.heads.read("head").value or b"").decode().split() == moved
        assert len(moved) == turn + 1
    for worker in workers:
        _kill(worker)


def test_a_killed_writer_leaves_whole_objects_or_none(
    store_settings: StoreSettings, store: Store
) -> None:
    chance = random.Random(9)
    kills = (10 if LONG else 1) * (14 if isinstance(store_settings, FileSettings) else 3)
    seen: set[str] = set()
    for _ in range(kills):
        stored = write_and_be_killed(start(store_settings, "write", 0, len(seen)), chance)
        keys = set(store.objects.keys("k/"))
        assert {f"k/{number:06}" for number in stored} <= keys
        for key in keys - seen:
            assert store.objects.get(key) == content(int(key.removeprefix("k/")))
        seen = keys
        assert sorted(seen) == [f"k/{number:06}" for number in range(len(seen))]
    assert len(seen) > kills
    if isinstance(store_settings, FileSettings):
        writer = start(store_settings, "write", 0, 0)
        assert line_of(writer) == "ready\n"
        assert list((store_settings.root / "staging").iterdir()) == []
        _kill(writer)


def write_and_be_killed(writer: subprocess.Popen[str], chance: random.Random) -> list[int]:
    """What the writer had said to be stored when it was killed."""
    release([writer])
    first = line_of(writer)
    time.sleep(chance.uniform(0, 0.05))
    writer.kill()
    assert writer.stdout is not None
    output = writer.stdout.read()
    _kill(writer)
    return [int(line) for line in (first + output).split()]


def _kill(writer: subprocess.Popen[str]) -> None:
    writer.kill()
    writer.wait()
    for pipe in (writer.stdin, writer.stdout):
        assert pipe is not None
        pipe.close()
