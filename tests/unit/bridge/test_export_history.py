"""The exporter's history agrees with one in memory, and its queries do not grow with it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count

import pytest

from bridge.audit_log import (
    ExportBegin,
    ExportFailed,
    ExportHeartbeat,
    ExportSuccess,
    RecordedEntry,
)
from bridge.exporter.history import SCHEMA, ExportHistory
from bridge.stream_map import ONLINE_LOG
from support.bridge.naive_history import NaiveHistory, naive_history
from veen.digest import h
from veen.errors import Untrusted

MINE, OTHER = h(b"mine"), h(b"other")
STREAMS = ("export/a", "export/b", ONLINE_LOG)


class Exports:
    """A plausible audit log of two bridges that share a zone, one after the other."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._ends = dict.fromkeys(STREAMS, 0)
        self._numbers = {MINE: count(1), OTHER: count(1)}
        self._seq = count(1)
        self.log: list[RecordedEntry] = []

    def grow(self, exports: int) -> list[RecordedEntry]:
        for _ in range(exports):
            self._export(MINE if self._draw.random() < 0.8 else OTHER)
        return self.log

    def _export(self, bridge_id: bytes) -> None:
        n, stream = next(self._numbers[bridge_id]), self._draw.choice(STREAMS)
        if self._draw.random() < 0.1:
            self._add(begin(bridge_id, n, "", 0, 0))
            self._add(heartbeat(bridge_id, n))
            return
        first = max(1, self._ends[stream] + self._draw.choice([1, 1, 1, -3]))
        last = first + self._draw.randrange(9)
        self._ends[stream] = max(self._ends[stream], last)
        self._add(begin(bridge_id, n, stream, first, last))
        if self._draw.random() < 0.1:
            self._add(failed(stream))
        elif self._draw.random() < 0.97:
            for medium in "ab"[: self._draw.randint(1, 2)]:
                self._add(success(bridge_id, n, stream, first, last, medium))

    def _add(self, event: ExportBegin | ExportSuccess | ExportHeartbeat | ExportFailed) -> None:
        self.log.append(RecordedEntry(next(self._seq), 0, event))


def begin(bridge_id: bytes, n: int, stream: str, first: int, last: int) -> ExportBegin:
    return ExportBegin(
        operator="o",
        bridge_id=bridge_id,
        n=n,
        bundle_id=bundle(stream, first, last) if stream else None,
        source_hub_id=h(b"hub"),
        stream=stream,
        from_seq=first,
        to_seq=last,
        checkpoint_id=h(b"checkpoint"),
        checkpoint_at=1,
    )


def success(
    bridge_id: bytes, n: int, stream: str, first: int, last: int, medium: str
) -> ExportSuccess:
    return ExportSuccess(
        operator="o",
        bridge_id=bridge_id,
        n=n,
        bundle_id=bundle(stream, first, last),
        sha256=h(b"bytes"),
        source_hub_id=h(b"hub"),
        stream=stream,
        from_seq=first,
        to_seq=last,
        count=last - first + 1,
        checkpoint_id=h(b"checkpoint"),
        checkpoint_at=1,
        root=h(f"{stream} {last} {n}".encode()),
        medium=medium,
    )


def bundle(stream: str, first: int, last: int) -> bytes:
    return h(f"{stream} {first} {last}".encode())


def heartbeat(bridge_id: bytes, n: int) -> ExportHeartbeat:
    return ExportHeartbeat(
        operator="o",
        bridge_id=bridge_id,
        n=n,
        source_hub_id=h(b"hub"),
        checkpoint_id=h(b"checkpoint"),
        checkpoint_at=1,
        medium="a",
    )


def failed(stream: str) -> ExportFailed:
    return ExportFailed(operator="o", stream=stream, code="E", detail="d")


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with sqlite3.connect(":memory:", isolation_level=None) as result:
        result.executescript(SCHEMA.first)
        yield result
    result.close()


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_a_history_in_memory(db: sqlite3.Connection, seed: int) -> None:
    exports, history = Exports(seed), ExportHistory(db, "test", MINE)
    folded = 0
    for _ in range(3):
        log = exports.grow(25)
        history.fold(log[folded:])
        folded = len(log)
        naive = naive_history(log, MINE)
        assert (history.last_n, history.done_total()) == (len(naive.entries), len(naive.done))
        assert history.begun() == naive.begun()
        for upto in (None, 1, history.last_n // 2):
            assert history.ledger(upto) == naive.ledger(upto)
        for n in range(1, history.last_n + 1):
            assert history.entry(n) == naive.entries[n - 1]
        for stream in STREAMS:
            agrees_about(history, naive, stream)


def agrees_about(history: ExportHistory, naive: NaiveHistory, stream: str) -> None:
    end = naive.cursor(stream).seq
    assert history.cursor(stream) == naive.cursor(stream)
    for seq in range(0, end + 2, 11):
        assert history.root_at(stream, seq) == naive.roots(stream).root_at(seq)
        assert history.has_news(seq, seq + 2) == naive.has_news(seq, seq + 2)
        for last in (seq, seq + 5, end):
            assert history.overlapping(stream, seq, last) == naive.overlapping(stream, seq, last)
    for item in naive.successes[-20:]:
        assert history.is_recorded(item)
        assert not history.is_recorded(replace(item, medium="c"))


def test_two_exporters_with_one_identity_are_refused(db: sqlite3.Connection) -> None:
    log = [
        RecordedEntry(1, 0, begin(MINE, 1, "", 0, 0)),
        RecordedEntry(2, 0, begin(MINE, 1, "", 0, 0)),
    ]
    with pytest.raises(Untrusted, match="expected ledger entry 2, got 1"):
        ExportHistory(db, "test", MINE).fold(log)


QUERIES: dict[str, Callable[[ExportHistory], object]] = {
    "cursor": lambda history: history.cursor(STREAMS[0]),
    "root": lambda history: history.root_at(STREAMS[0], 7),
    "news": lambda history: history.has_news(3, 9),
    "entry": lambda history: history.entry(5),
    "ledger": lambda history: history.ledger(),
    "begun": lambda history: history.begun(),
    "done": lambda history: history.done_total(),
    "recorded": lambda history: history.is_recorded(success(MINE, 1, STREAMS[0], 1, 2, "x")),
    "overlapping": lambda history: history.overlapping(STREAMS[0], 20, 30),
    "new entry": lambda history: history.fold([]),
    "soundness": lambda history: history.is_sound(),
}


@pytest.fixture(scope="module")
def databases() -> Iterator[tuple[sqlite3.Connection, sqlite3.Connection]]:
    """The histories of 100 and of 5,000 exports."""
    with closing(folded(100)) as few, closing(folded(5_000)) as many:
        yield few, many


def folded(exports: int) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(SCHEMA.first)
    ExportHistory(db, "test", MINE).fold(finished(exports))
    return db


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_takes_as_many_steps_after_fifty_times_as_many_exports(
    databases: tuple[sqlite3.Connection, sqlite3.Connection], query: str
) -> None:
    few, many = (steps(QUERIES[query], db) for db in databases)
    assert 0 < many <= few + 20, "the number grows with the history"


def steps(query: Callable[[ExportHistory], object], db: sqlite3.Connection) -> int:
    """The instructions of SQLite's virtual machine that a query takes."""
    total = 0

    def step() -> None:
        nonlocal total
        total += 1

    db.set_progress_handler(step, 1)
    query(ExportHistory(db, "test", MINE))
    db.set_progress_handler(None, 1)
    return total


def finished(exports: int) -> Iterator[RecordedEntry]:
    """Exports in a row without a failure, and an entry that is begun."""
    seq = count(1)
    for n in range(1, exports + 1):
        stream, first = STREAMS[n % 2], 5 * n
        yield RecordedEntry(next(seq), 0, begin(MINE, n, stream, first, first + 4))
        yield RecordedEntry(next(seq), 0, success(MINE, n, stream, first, first + 4, "a"))
    yield RecordedEntry(next(seq), 0, begin(MINE, exports + 1, STREAMS[0], 1, 2))
