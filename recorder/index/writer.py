"""The only writer of an index: rows, nodes and position of verified pairs in one transaction.

Also classifies each message by what the reader's keys open.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Protocol

from recorder.index import tables
from recorder.index.tables import (
    BadIndex,
    EventRow,
    IndexedStream,
    IndexGeneration,
    PairRow,
    SourceRow,
    transaction,
)
from veen import mmr
from veen.errors import Unopenable, Untrusted
from veen.events import EventFault, NotAnEvent, read_event
from veen.label import DEFAULT_PROFILE
from veen.limits import Limits
from veen.log.nodes import NodeFile
from veen.mmr import EMPTY, Peaks
from veen.msg import Msg
from veen.payload import Opened, open_with_any
from veen.receipt import Receipt

_STREAM = "INSERT INTO streams VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PAIR = "INSERT INTO pairs VALUES (?, ?, ?, ?)"
_SOURCE = "INSERT INTO origins VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_ADVANCE = "UPDATE streams SET position = ?, root = ?, last_ts = ?, unread = ? WHERE stream_no = ?"


class EventReading(NamedTuple):
    """The fields of an event and the key of its body, or the fault why it is not an event."""

    fault: str | None
    subject_id: str | None = None
    principal_id: bytes | None = None
    event_type: str | None = None
    event_time: int | None = None
    origin: str | None = None
    payload: bytes | None = None
    body_key: bytes | None = None


class EntryReader:
    """Decrypts events with the reader's private keys; recorder streams have the default profile."""

    def __init__(self, keys: Sequence[bytes], limits: Limits) -> None:
        self._keys = list(keys)
        self._limits = limits

    def read(self, raw: bytes) -> EventReading:
        """Read a message whose signature and position were verified elsewhere."""
        msg = Msg.decode(raw)
        opened = self._open(msg)
        if opened is None:
            return EventReading(EventFault.UNOPENED.name)
        try:
            event = read_event(opened.header.schema, opened.body, msg.client_id)
        except NotAnEvent as error:
            return EventReading(error.fault.name)
        return EventReading(
            None,
            event.subject_id,
            event.principal_id,
            event.event_type,
            event.event_time,
            event.origin,
            bytes(event.payload),
            opened.body_key,
        )

    def _open(self, msg: Msg) -> Opened | None:
        try:
            return open_with_any(self._keys, msg, DEFAULT_PROFILE, self._limits)
        except Unopenable:
            return None


class VerifiedPair(Protocol):
    """A verified message and its receipt; an excluded message is None."""

    @property
    def msg(self) -> Msg | None: ...

    @property
    def receipt(self) -> Receipt: ...


class IndexWriter:
    """The writer of a generation; the caller holds the lock of the index."""

    def __init__(
        self, generation: IndexGeneration, db: sqlite3.Connection, closing: ExitStack
    ) -> None:
        self.generation = generation
        self.db = db
        self.hub_id = bytes(tables.meta(db)["hub_id"])
        self._closing = closing
        self._streams = {(stream.hub_id, stream.name): stream for stream in tables.streams(db)}
        self._peaks: dict[int, Peaks] = {}
        self._nodes: dict[int, NodeFile] = {}
        self._awaited: dict[int, int] = {}

    def streams(self) -> list[IndexedStream]:
        return list(self._streams.values())

    def stream(self, name: str, hub_id: bytes | None = None) -> IndexedStream:
        """Return the row of a stream of our hub, or of ``hub_id``; a new stream starts empty."""
        key = (hub_id or self.hub_id, name)
        if key not in self._streams:
            number = max((stream.stream_no for stream in self._streams.values()), default=0) + 1
            row = IndexedStream(number, *key, 0, b"", 0, 0, 0, 0, 0)
            with transaction(self.db):
                self.db.execute(_STREAM, row)
            self._streams[key] = row
        return self._streams[key]

    def nodes(self, row: IndexedStream) -> NodeFile:
        if row.stream_no not in self._nodes:
            node_file = NodeFile.for_writing(self.generation.nodes(row.stream_no))
            self._nodes[row.stream_no] = self._closing.enter_context(node_file)
        return self._nodes[row.stream_no]

    def append(
        self,
        row: IndexedStream,
        pairs: Sequence[VerifiedPair],
        readings: Sequence[EventReading],
        sources: Sequence[SourceRow] = (),
    ) -> IndexedStream:
        """Index consecutive pairs in one transaction.

        ``sources`` are the positions of imported events at their origin. The nodes are synced
        first: a crash leaves more of them than the tables refer to, and the next run writes the
        same nodes again.
        """
        peaks, nodes = self._grown(row, pairs)
        events, pair_rows = _rows(row, pairs, readings)
        last = pairs[-1].receipt
        advanced = row._replace(
            position=peaks.size, root=peaks.root(), last_ts=last.hub_ts, unread=events[-1].unread
        )
        file = self.nodes(row)
        file.write_from(row.position + 1, nodes)
        file.sync()
        with transaction(self.db):
            self.db.executemany(_EVENT, events)
            self.db.executemany(_PAIR, pair_rows)
            self.db.executemany(_SOURCE, sources)
            place = (
                advanced.position,
                advanced.root,
                advanced.last_ts,
                advanced.unread,
                advanced.stream_no,
            )
            self.db.execute(_ADVANCE, place)
        return self._cache(advanced, peaks)

    def update(self, row: IndexedStream) -> None:
        """Store the heads and the checked checkpoint of a stream, within the caller's
        transaction."""
        self.db.execute(
            "UPDATE streams SET checked = ?, head_seq = ?, head_ts = ? WHERE stream_no = ?",
            (row.checked, row.head_seq, row.head_ts, row.stream_no),
        )
        self._streams[row.hub_id, row.name] = row

    def note(self, key: str, value: str | int | None) -> None:
        """Store metadata of the follower, within the caller's transaction."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def root_at(self, row: IndexedStream, size: int) -> bytes:
        return mmr.peaks_at(self.nodes(row), size).root()

    def await_position(self, row: IndexedStream, seq: int) -> None:
        """Remember where a stream must be for its next recorder checkpoint."""
        self._awaited[row.stream_no] = seq

    def may_reach(self, row: IndexedStream) -> bool:
        """Whether a stream may have reached its next recorder checkpoint."""
        return row.position >= self._awaited.get(row.stream_no, 0)

    def _cache(self, row: IndexedStream, peaks: Peaks) -> IndexedStream:
        self._peaks[row.stream_no] = peaks
        self._streams[row.hub_id, row.name] = row
        return row

    def _grown(self, row: IndexedStream, pairs: Sequence[VerifiedPair]) -> tuple[Peaks, bytes]:
        """The range after the pairs, and the nodes they complete.

        The last root covers every leaf before it, so comparing that one is enough.
        """
        peaks, completed = self._peaks_of(row), []
        hub_ts = row.last_ts
        for pair in pairs:
            receipt = pair.receipt
            if receipt.stream_seq != peaks.size + 1:
                raise Untrusted(
                    f"{row.name}: expected stream_seq {peaks.size + 1}, got {receipt.stream_seq}"
                )
            if receipt.hub_ts < hub_ts:
                raise Untrusted(
                    f"{row.name}, stream_seq {receipt.stream_seq}: expected hub_ts {hub_ts} or "
                    f"later, got {receipt.hub_ts}"
                )
            hub_ts = receipt.hub_ts
            peaks, nodes = mmr.grow(peaks, receipt.leaf_hash)
            completed += nodes
        if peaks.root() != pairs[-1].receipt.mmr_root:
            raise Untrusted(
                f"{row.name}, stream_seq {peaks.size}: the hub signed another root than that of "
                "what was indexed; run veen recorder index verify"
            )
        return peaks, b"".join(completed)

    def _peaks_of(self, row: IndexedStream) -> Peaks:
        if not row.position:
            return EMPTY
        if row.stream_no not in self._peaks:
            self._peaks[row.stream_no] = self._stored_peaks(row)
        return self._peaks[row.stream_no]

    def _stored_peaks(self, row: IndexedStream) -> Peaks:
        try:
            peaks = mmr.peaks_at(self.nodes(row), row.position)
        except LookupError as error:
            raise BadIndex(f"{row.name}: {error}; {tables.REMEDY}") from error
        if peaks.root() != row.root:
            raise BadIndex(f"{row.name}: the indexed nodes do not give its root; {tables.REMEDY}")
        return peaks


@contextmanager
def writing(generation: IndexGeneration) -> Iterator[IndexWriter]:
    with ExitStack() as closing:
        db = closing.enter_context(tables.connected(generation, writable=True))
        tables.migrate(db)
        yield IndexWriter(generation, db, closing)


def _rows(
    row: IndexedStream, pairs: Sequence[VerifiedPair], readings: Sequence[EventReading]
) -> tuple[list[EventRow], list[PairRow]]:
    events, stored, unread = [], [], row.unread
    for pair, reading in zip(pairs, readings, strict=True):
        receipt = pair.receipt
        place = row.place(receipt.stream_seq)
        unread += reading.fault is not None
        events.append(
            EventRow(
                place,
                row.stream_no,
                receipt.hub_ts,
                receipt.leaf_hash,
                unread,
                reading.fault,
                reading.subject_id,
                reading.principal_id,
                reading.event_type,
                reading.event_time,
                reading.origin,
                reading.payload,
            )
        )
        msg = pair.msg.encode() if pair.msg is not None else b""
        stored.append(PairRow(place, msg, receipt.encode(), reading.body_key))
    return events, stored
