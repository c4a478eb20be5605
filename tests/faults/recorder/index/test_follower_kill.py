"""A follower is killed again and again: its index is that of one which never was."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recorder.index.rebuild import compare
from recorder.index.tables import IndexHome
from support.long_form import LONG
from support.paths import SUPPORT
from support.recorder import index_recorded

SCRIPT = SUPPORT / "recorder" / "following_process.py"
EVENTS, KILLS, LONGER = 200, 12, 8


class Followers:
    """Followers of one client directory into one index, one after another."""

    def __init__(self, *words: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, last: int, openers: int) -> int:
        """How one ended, that may run so many statements."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{last} {openers}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def test_an_index_whose_follower_was_killed_is_that_of_a_fresh_one(
    make_index_hub: Callable[..., Any], open_client: Callable[..., Any], tmp_path: Path
) -> None:
    hub, draw, times = make_index_hub().start(), random.Random(5), LONGER if LONG else 1
    with open_client(hub.url, "reader") as reader:
        writer = open_client(hub.url, "writer")
        for stream in (index_recorded.FIRST, index_recorded.SECOND):
            index_recorded.record(writer, stream, reader, range(EVENTS * times))
    followers = Followers(tmp_path / "reader", tmp_path / "index", hub.url)
    # A batch of 40 runs some 90 statements: each of its rows is one.
    ends = [
        followers.run(draw.randint(5, 130), openers=int(number % 6 == 5))
        for number in range(KILLS * times)
    ]
    assert set(ends) <= {0, -signal.SIGKILL}
    assert ends.count(-signal.SIGKILL) >= 10 * times
    assert followers.run(10**9, openers=0) == 0
    followers.close()
    _assert_whole(open_client(hub.url, "reader"), tmp_path, EVENTS * times)


def _assert_whole(reader: Any, tmp_path: Path, events: int) -> None:
    killed, fresh = IndexHome(tmp_path / "index"), IndexHome(tmp_path / "fresh")
    assert index_recorded.catch_up(reader, fresh) == 2 * events
    assert index_recorded.dump(killed) == index_recorded.dump(fresh)
    result = compare(killed.current(), fresh.current())
    assert (result.entries, result.differences) == (2 * events, [])
