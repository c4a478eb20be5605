"""What two indexes of one log must have in common: every row and node, by hub, stream and place."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from recorder.index import tables
from recorder.index.home import Generation
from recorder.index.tables import StreamRow
from veen import mmr
from veen.import_event import NAMESPACE
from veen.nodes import NODE_BYTES, NodeFile

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


def compare(one: Generation, other: Generation) -> Compared:
    """Two indexes as far as both go; what only one of them has reached yet is not compared.

    Only what ``one`` has too much is a difference: the other may follow more streams.
    """
    with (
        tables.connected(one, writable=False) as ours,
        tables.connected(other, writable=False) as theirs,
    ):
        known = {(row.hub_id, row.name): row for row in tables.streams(theirs)}
        entries, found = 0, []
        for row in tables.streams(ours):
            match = known.get((row.hub_id, row.name))
            if match is None and row.hub_id != bytes(tables.meta(ours)["hub_id"]):
                # An imported stream that is not taken up any more.
                continue
            if match is None:
                found.append(Difference(row.name, 1, "the other has no such stream"))
                continue
            size = min(row.position, match.position)
            entries += size
            found += _beyond(ours, row)
            pairs = zip_longest(_rows(ours, row, size), _rows(theirs, match, size))
            found += _first(row.name, "its row", pairs)
            sources = zip_longest(_origins(ours, row, size), _origins(theirs, match, size))
            found += _first(row.name, "its place at its origin", sources)
            nodes = zip_longest(_nodes(one, row, size), _nodes(other, match, size))
            found += _first(row.name, "a node near it", nodes)
        return Compared(entries, found)


def _beyond(db: sqlite3.Connection, row: StreamRow) -> list[Difference]:
    """Rows that stand where the index itself says that it has not been."""
    after, last = row.place(row.position + 1), tables.place(row.stream_no + 1, 0)
    query = "SELECT place FROM {} WHERE place BETWEEN ? AND ? LIMIT 1"
    for table in ("events", "pairs"):
        found = db.execute(query.format(table), (after, last)).fetchone()
        if found is not None:
            return [Difference(row.name, tables.seq_of(found[0]), "a row beyond its end")]
    return []


def _first(
    stream: str, what: str, pairs: Iterator[tuple[tuple[object, ...] | None, ...]]
) -> list[Difference]:
    for left, right in pairs:
        if left != right:
            seqs = [one[0] for one in (left, right) if one is not None]
            return [Difference(stream, min(int(str(seq)) for seq in seqs), what)]
    return []


def _rows(db: sqlite3.Connection, row: StreamRow, size: int) -> Iterator[tuple[object, ...]]:
    """Without the numbers that streams happen to have."""
    for found in db.execute(_ROWS, (row.place(1), row.place(size))):
        yield (tables.seq_of(found[0]), *found[_WITHOUT_PLACE:])


def _origins(db: sqlite3.Connection, row: StreamRow, size: int) -> Iterator[tuple[object, ...]]:
    """Of an import stream; no other has any, and an older index has no such table."""
    if not row.name.startswith(NAMESPACE):
        return
    for found in db.execute(_SOURCES, (row.place(1), row.place(size))):
        yield (tables.seq_of(found[0]), *found[_WITHOUT_PLACE:])


def _nodes(generation: Generation, row: StreamRow, size: int) -> Iterator[tuple[object, ...]]:
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
