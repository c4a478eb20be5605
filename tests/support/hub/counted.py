"""Counts of what an operation asks of the kernel, and of SQLite: costs that no clock changes."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

_SELF = Path("/proc/self/io")


class CountedIo(NamedTuple):
    bytes_read: int
    bytes_written: int
    calls: int
    """Calls of read and write."""


def counted_io(work: Callable[[], object]) -> CountedIo:
    """The reads and writes of this process while it does ``work``."""
    before = _counters()
    work()
    after = _counters()
    # Reading the counters is a read as well, of about a hundred bytes.
    return CountedIo(*(now - then for then, now in zip(before, after, strict=True)))


def _counters() -> CountedIo:
    fields = dict(line.split(": ") for line in _SELF.read_text().splitlines())
    return CountedIo(
        int(fields["rchar"]), int(fields["wchar"]), int(fields["syscr"]) + int(fields["syscw"])
    )


@contextmanager
def traced(db: sqlite3.Connection) -> Iterator[list[str]]:
    """The statements that a connection runs, with their values filled in."""
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    try:
        yield statements
    finally:
        db.set_trace_callback(None)


def scans(db: sqlite3.Connection, statement: str, values: tuple[Any, ...] = ()) -> list[str]:
    """The steps of a query plan that read a whole table or index."""
    rows = db.execute(f"EXPLAIN QUERY PLAN {statement}", values)
    return [row[3] for row in rows if row[3].startswith("SCAN")]


def counted_calls(work: Callable[[], object]) -> int:
    """The calls of functions, built-in ones too, while this thread does ``work``."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
