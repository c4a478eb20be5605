"""Rebuilding an index from the log beside the current one, and switching to it atomically.

The comparison is the fsck of an index: two indexes of one log must agree on every row and node by
hub, stream and position.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
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
from veen.system.environment import Progress

_NODE_BATCH = 4_096
_ROWS = """
SELECT e.*, p.msg, p.receipt, p.body_key FROM events e LEFT JOIN pairs p ON p.place = e.place
WHERE e.place BETWEEN ? AND ? ORDER BY e.place"""
_SOURCES = "SELECT * FROM origins WHERE place BETWEEN ? AND ? ORDER BY place"
_WITHOUT_PLACE = 2


class Difference(NamedTuple):
    """The first difference of two indexes in a stream."""

    stream: str
    seq: int
    what: str


class Compared(NamedTuple):
    """How many entries were compared, and the differences."""

    entries: int
    differences: list[Difference]


def compare(generation: IndexGeneration, other: IndexGeneration) -> Compared:
    """Compare two indexes as far as both reach.

    Only what ``generation`` has in excess is a difference: ``other`` may follow more streams.
    """
    with (
        tables.connected(generation, writable=False) as ours,
        tables.connected(other, writable=False) as theirs,
    ):
        known = {(row.hub_id, row.name): row for row in tables.streams(theirs)}
        entries, differences = 0, []
        for row in tables.streams(ours):
            match = known.get((row.hub_id, row.name))
            if match is None and row.hub_id != bytes(tables.meta(ours)["hub_id"]):
                # An imported stream that is no longer configured.
                continue
            if match is None:
                differences.append(Difference(row.name, 1, "the other has no such stream"))
                continue
            size = min(row.position, match.position)
            entries += size
            differences += _beyond(ours, row)
            pairs = zip_longest(_rows(ours, row, size), _rows(theirs, match, size))
            differences += _first(row.name, "its row", pairs)
            sources = zip_longest(_origins(ours, row, size), _origins(theirs, match, size))
            differences += _first(row.name, "its place at its origin", sources)
            nodes = zip_longest(_nodes(generation, row, size), _nodes(other, match, size))
            differences += _first(row.name, "a node near it", nodes)
        return Compared(entries, differences)


def _beyond(db: sqlite3.Connection, row: IndexedStream) -> list[Difference]:
    """Find rows beyond the position that the index itself states."""
    after, last = row.place(row.position + 1), tables.place(row.stream_no + 1, 0)
    query = "SELECT place FROM {} WHERE place BETWEEN ? AND ? LIMIT 1"
    for table in ("events", "pairs"):
        excess = db.execute(query.format(table), (after, last)).fetchone()
        if excess is not None:
            return [Difference(row.name, tables.seq_of(excess[0]), "a row beyond its end")]
    return []


def _first(
    stream: str, what: str, pairs: Iterator[tuple[tuple[object, ...] | None, ...]]
) -> list[Difference]:
    for left, right in pairs:
        if left != right:
            seqs = [side[0] for side in (left, right) if side is not None]
            return [Difference(stream, min(int(str(seq)) for seq in seqs), what)]
    return []


def _rows(db: sqlite3.Connection, row: IndexedStream, size: int) -> Iterator[tuple[object, ...]]:
    """The rows of a stream without its number, which may differ."""
    for values in db.execute(_ROWS, (row.place(1), row.place(size))):
        yield (tables.seq_of(values[0]), *values[_WITHOUT_PLACE:])


def _origins(db: sqlite3.Connection, row: IndexedStream, size: int) -> Iterator[tuple[object, ...]]:
    """The origins of an import stream; an older index may lack the table."""
    if not row.name.startswith(IMPORT_NAMESPACE):
        return
    for values in db.execute(_SOURCES, (row.place(1), row.place(size))):
        yield (tables.seq_of(values[0]), *values[_WITHOUT_PLACE:])


def _nodes(
    generation: IndexGeneration, row: IndexedStream, size: int
) -> Iterator[tuple[object, ...]]:
    count = mmr.completed_by(size).stop if size else 0
    if not count:
        return
    with NodeFile.for_reading(generation.nodes(row.stream_no)) as file:
        for start in range(0, count, _NODE_BATCH):
            raw = file.read(start, min(_NODE_BATCH, count - start))
            for number in range(0, len(raw), NODE_BYTES):
                # A leaf completes two nodes at most on average.
                near = (start + number // NODE_BYTES) // 2 + 1
                yield near, raw[number : number + NODE_BYTES]


class RebuiltIndex(NamedTuple):
    """How many entries the new index holds; ``compared`` is None without an old index."""

    entries: int
    compared: Compared | None


def create(home: IndexHome, hub_id: bytes) -> IndexGeneration:
    """Return the current index, after creating an empty one if necessary.

    The caller holds the lock.
    """
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
    requested: frozenset[str] | None,
    progress: Progress,
) -> IndexGeneration:
    """Build a new index of everything the hub has by now, imports included, beside the current
    one."""
    fresh = home.fresh()
    tables.create(fresh, client.meet().hub.hub_id)
    with writing(fresh) as writer:
        follower = Follower(client, writer, opener, requested)
        total = count = follower.round()
        ends = {row.stream_no: row.head_seq for row in writer.streams()}
        # Up to the heads at the start, since the hub may never be idle.
        while count and any(row.position < ends.get(row.stream_no, 0) for row in writer.streams()):
            progress(total, None)
            count = follower.round()
            total += count
        if follower.import_trouble is not None:
            # A follower continues without such a stream; a rebuild must not.
            raise Untrusted(follower.import_trouble)
    return fresh


def rebuild(
    home: IndexHome,
    client: Client,
    opener: BatchOpener,
    requested: frozenset[str] | None,
    progress: Progress,
) -> RebuiltIndex:
    """Build a new index, compare it with the old one, and swap. The caller holds the lock."""
    fresh = build(home, client, opener, requested, progress)
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
    requested: frozenset[str] | None,
    progress: Progress,
) -> Compared:
    """Compare the index with one that is newly built from the log.

    The caller holds the lock; the index is not changed.
    """
    current = home.current()
    try:
        return compare(current, build(home, client, opener, requested, progress))
    finally:
        home.sweep()
