"""A sending client is killed again and again: nothing it took is lost, nothing is doubled."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest

from support.client import client_producer
from support.long_form import LONG
from support.paths import SUPPORT

SCRIPT = SUPPORT / "client" / "sending_process.py"
STREAMS = ("record/one", "record/two")
POINTS = ("add", "journal", "submit", "state", "book", "settle")
KILLS, LONGER = 30, 30


class Zygote:
    """Starts senders on one directory, and remembers what they were promised."""

    def __init__(self, directory: Path, url: str) -> None:
        command = [sys.executable, str(SCRIPT), str(directory), url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.promised: dict[str, list[bytes]] = {stream: [] for stream in STREAMS}

    def start(self, *words: object) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        while not (line := self._line()).startswith("child"):
            self._note(line)
        return int(line.split()[1])

    def follow(self, count: int) -> None:
        """Until so many more events were promised."""
        for _ in range(count):
            self._note(self._line())

    def wait(self) -> int:
        """How it ended."""
        while not (line := self._line()).startswith("dead"):
            self._note(line)
        return int(line.split()[1])

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return line

    def _note(self, line: str) -> None:
        _, stream, body = line.split()
        self.promised[stream].append(body.encode())


@pytest.fixture
def zygote(open_client_hub: Any, tmp_path: Path) -> Iterator[Zygote]:
    client_producer.a_client(tmp_path / "client", open_client_hub.url).close()
    result = Zygote(tmp_path / "client", open_client_hub.url)
    yield result
    result.close()


@pytest.fixture
def check(open_client_hub: Any, tmp_path: Path) -> Callable[[Zygote], None]:
    """Everything promised is in the log once and in order, and so is what was not told of."""

    def checked(zygote: Zygote) -> None:
        zygote.start(-1)
        assert zygote.wait() == 0
        with client_producer.a_client(tmp_path / "client", open_client_hub.url) as client:
            assert client.pending() == 0
            for stream in STREAMS:
                log = client_producer.log_of(open_client_hub.client(), stream)
                own = [
                    entry
                    for entry in log.entries
                    if entry[0][3] == client.session.identity.client_id
                ]
                bodies = [client_producer.body_of(msg, client) for msg, _ in own]
                assert len(set(bodies)) == len(bodies)
                assert [body for body in bodies if body in set(zygote.promised[stream])] == (
                    zygote.promised[stream]
                )
                assert _by_life(bodies) == bodies
                view = client.session.view(log.label, stream, 0)
                assert view.cursor(client.session.identity.client_id).client_seq == len(own)
                assert list(view.peaks.hashes) == log.mmr.peaks
                stored = {
                    cbor2.dumps(receipt)
                    for receipt in client_producer.receipts_in(client.session.root)
                }
                assert {cbor2.dumps(receipt) for _, receipt in own} <= stored

    return checked


@pytest.mark.timeout(3_000)
def test_a_client_killed_at_any_moment_neither_loses_nor_doubles(
    zygote: Zygote, check: Callable[[Zygote], None]
) -> None:
    chance = random.Random(41)
    for life in range(KILLS * (LONGER if LONG else 1)):
        child = zygote.start(life)
        zygote.follow(chance.choice((0, 0, 1, 2, 5, 10, 20)))
        time.sleep(chance.uniform(0, 0.1))
        os.kill(child, signal.SIGKILL)
        assert zygote.wait() == -signal.SIGKILL
    check(zygote)
    assert all(len(promised) > KILLS for promised in zygote.promised.values())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_client_that_dies_at_a_step_neither_loses_nor_doubles(
    when: str, zygote: Zygote, check: Callable[[Zygote], None]
) -> None:
    lives = [(point, turns) for point in POINTS for turns in (1, 2, 3)]
    for life, (point, turns) in enumerate(lives):
        zygote.start(life, point, when, turns)
        assert zygote.wait() == -signal.SIGKILL
    check(zygote)


def _by_life(bodies: list[bytes]) -> list[bytes]:
    return sorted(bodies, key=lambda item: [int(part) for part in re.findall(rb"\d+", item)])
