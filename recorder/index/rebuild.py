"""An index made again from the log, beside the old one, and put in its place at once.

What two indexes of one log must have in common: every row and node, by hub, stream and place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from recorder.index import tables
from recorder.index.follower import BatchOpener, Follower
from recorder.index.tables import IndexedStream, IndexGeneration, IndexHome
from recorder.index.writer import writing
from veen import mmr
from veen.client.client import Client
from veen.errors import Untrusted
from veen.events import IMPORT_NAMESPACE
from veen.log.nodes import NODE_BYTES, NodeFile

_NODES_AT_A_TIME = 4_096
_ROWS = """
SELECT e.*, p.msg, p.receipt, p.body_key FROM events e LEFT JOIN pairs p ON p.place = e.place
WHERE e.place BETWEEN ? AND ? ORDER BY e.place"""
_SOURCES = "SELECT * FROM origins WHERE place BETWEEN ? AND ? ORDER BY place"
_WITHOUT_PLACE = 2


class Difference(NamedTuple):
    """Where two indexes first differ in a stream, and in what."""

    stream: str
    seq: int
    what: str


class Compared(NamedTuple):
    """How many entries both had, and where they differed."""

    entries: int
    differences: list[Difference]


def compare(generation: IndexGeneration, other: IndexGeneration) -> Compared:
    """Two indexes as far as both go; what only one of them has reached yet is not compared.

    Only what ``one`` has too much is a difference: the other may follow more streams.
    """
    with (
        tables.connected(generation, writable=False) as ours,
        tables.connected(other, writable=False) as theirs,
    ):
        known = {(row.hub_id, row.name): row for row in tables.streams(theirs)}
        entries, result = 0, []
        for row in tables.streams(ours):
            match = known.get((row.hub_id, row.name))
            if match is None and row.hub_id != bytes(tables.meta(ours)["hub_id"]):
                # An imported stream that is not taken up any more.
                continue
            if match is None:
                result.append(Difference(row.name, 1, "the other has no such stream"))
                continue
            size = min(row.position, match.position)
            entries += size
            result += _beyond(ours, row)
            pairs = zip_longest(_rows(ours, row, size), _rows(theirs, match, size))
            result += _first(row.name, "its row", pairs)
            sources = zip_longest(_origins(ours, row, size), _origins(theirs, match, size))
            result += _first(row.name, "its place at its origin", sources)
            nodes = zip_longest(_nodes(generation, row, size), _nodes(other, match, size))
            result += _first(row.name, "a node near it", nodes)
        return Compared(entries, result)


def _beyond(db: sqlite3.Connection, row: IndexedStream) -> list[Difference]:
    """Rows that stand where the index itself says that it has not been."""
    after, last = row.place(row.position + 1), tables.place(row.stream_no + 1, 0)
    query = "SELECT place FROM {} WHERE place BETWEEN ? AND ? LIMIT 1"
    for table in ("events", "pairs"):
        result = db.execute(query.format(table), (after, last)).fetchone()
        if result is not None:
            return [Difference(row.name, tables.seq_of(result[0]), "a row beyond its end")]
    return []


def _first(
    stream: str, what: str, pairs: Iterator[tuple[tuple[object, ...] | None, ...]]
) -> list[Difference]:
    for left, right in pairs:
        if left != right:
            seqs = [item[0] for item in (left, right) if item is not None]
            return [Difference(stream, min(int(str(seq)) for seq in seqs), what)]
    return []


def _rows(db: sqlite3.Connection, row: IndexedStream, size: int) -> Iterator[tuple[object, ...]]:
    """Without the numbers that streams happen to have."""
    for result in db.execute(_ROWS, (row.place(1), row.place(size))):
        yield (tables.seq_of(result[0]), *result[_WITHOUT_PLACE:])


def _origins(db: sqlite3.Connection, row: IndexedStream, size: int) -> Iterator[tuple[object, ...]]:
    """Of an import stream; no other has any, and an older index has no such table."""
    if not row.name.startswith(IMPORT_NAMESPACE):
        return
    for result in db.execute(_SOURCES, (row.place(1), row.place(size))):
        yield (tables.seq_of(result[0]), *result[_WITHOUT_PLACE:])


def _nodes(
    generation: IndexGeneration, row: IndexedStream, size: int
) -> Iterator[tuple[object, ...]]:
    count = mmr.completed_by(size).stop if size else 0
    if not count:
        return
    with NodeFile.for_reading(generation.nodes(row.stream_no)) as file:
        for start in range(0, count, _NODES_AT_A_TIME):
            raw = file.read(start, min(_NODES_AT_A_TIME, count - start))
            for number in range(0, len(raw), NODE_BYTES):
                # A leaf completes two nodes or less on the average.
                near = (start + number // NODE_BYTES) // 2 + 1
                yield near, raw[number : number + NODE_BYTES]


Progress = Callable[[int], None]


class RebuiltIndex(NamedTuple):
    """How many entries the new index holds; ``compared`` is None when there was no old one."""

    entries: int
    compared: Compared | None


def create(home: IndexHome, hub_id: bytes) -> IndexGeneration:
    """The current index; an empty one where there was none. The caller holds the lock."""
    if home.exists():
        return home.current()
    fresh = home.fresh()
    tables.create(fresh, hub_id)
    home.swap(fresh)
    return fresh


def build(
    home: IndexHome,
    client: Client,
    opener: BatchOpener,
    value: frozenset[str] | None,
    progress: Progress,
) -> IndexGeneration:
    """A new index of all that the hub has by now, imports included, beside the current one."""
    fresh = home.fresh()
    tables.create(fresh, client.meet().hub.hub_id)
    with writing(fresh) as writer:
        follower = Follower(client, writer, opener, value)
        done = result = follower.round()
        ends = {row.stream_no: row.head_seq for row in writer.streams()}
        # Up to where the hub was when it began: it may never stand still.
        while result and any(row.position < ends.get(row.stream_no, 0) for row in writer.streams()):
            progress(done)
            result = follower.round()
            done += result
        if follower.import_trouble is not None:
            # Whoever follows goes on without such a stream; an index that is made again does not.
            raise Untrusted(follower.import_trouble)
    return fresh


def rebuild(
    home: IndexHome,
    client: Client,
    opener: BatchOpener,
    value: frozenset[str] | None,
    progress: Progress,
) -> RebuiltIndex:
    """Build, compare with the old one, swap. The caller holds the lock."""
    fresh = build(home, client, opener, value, progress)
    compared = compare(home.current(), fresh) if home.exists() else None
    home.swap(fresh)
    home.sweep()
    with tables.connected(fresh, writable=False) as db:
        entries = sum(row.position for row in tables.streams(db))
    return RebuiltIndex(entries, compared)


def verify(
    home: IndexHome,
    client: Client,
    opener: BatchOpener,
    value: frozenset[str] | None,
    progress: Progress,
) -> Compared:
    """Whether the index says what the log says: it is built once more, and the two compared.

    The caller holds the lock; the index stays as it is.
    """
    current = home.current()
    try:
        return compare(current, build(home, client, opener, value, progress))
    finally:
        home.sweep()
