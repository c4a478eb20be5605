"""A consistent snapshot of an index for one query, and the status of an index.

Rows added after the snapshot was opened are not visible in it. The status reports how far the index
is behind the hub and which faults it has recorded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from recorder.index import tables
from recorder.index.placement import misplaced
from recorder.index.tables import BadIndex, IndexedStream, IndexGeneration, IndexHome, PairRow
from veen import mmr
from veen.errors import Untrusted, VeenError
from veen.log.nodes import NodeFile
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd

_CACHED_NODES: Final = 1 << 16
_PAIR_BATCH: Final = 500


class IndexAlarm(Untrusted):
    """The hub's checkpoints contradict its log; no query is answered until that is resolved."""


class NotReached(VeenError):
    """The index has not reached the checkpoint, or does not know it yet."""


class Snapshot:
    """A read transaction on an index generation."""

    def __init__(
        self, generation: IndexGeneration, db: sqlite3.Connection, closing: ExitStack
    ) -> None:
        self.db = db
        self.hub_id = bytes(tables.meta(db)["hub_id"])
        self._generation = generation
        self._closing = closing
        self._rows = {(row.hub_id, row.name): row for row in tables.streams(db)}
        self._nodes: dict[int, CachedNodes] = {}

    def streams(self) -> list[IndexedStream]:
        return list(self._rows.values())

    def verify_no_alarms(self) -> None:
        for detail in tables.alarms(self.db):
            raise IndexAlarm(f"{detail}; queries are stopped")

    def reached(self, checkpoint: RecorderCheckpoint, name: str) -> tuple[IndexedStream, StreamEnd]:
        """Return a stream that has reached the checkpoint, after comparing its root again."""
        end = checkpoint.end(name)
        if end is None:
            raise NotReached(f"the checkpoint does not cover {name}; wait for the next")
        row = self._rows.get((checkpoint.hub_id, name))
        if row is None or row.position < end.last_seq or row.checked < self._number(checkpoint):
            at = row.position if row else 0
            raise NotReached(
                f"{name} is indexed up to {at}, the checkpoint ends at {end.last_seq}; wait, or "
                "see veen recorder index status"
            )
        if end.last_seq and self._root_at(row, end.last_seq) != end.mmr_root:
            raise Untrusted(
                f"{name}: the indexed nodes do not give the root of the checkpoint; {tables.REMEDY}"
            )
        return row, end

    def latest(self, names: Sequence[str]) -> RecorderCheckpoint | None:
        """The latest checkpoint that covers these streams and that all of them have reached."""
        return next(self.agreed(names), None)

    def agreed(self, names: Sequence[str]) -> Iterator[RecorderCheckpoint]:
        """Yield that checkpoint and earlier ones that cover these streams, the latest first."""
        rows = [self._rows.get((self.hub_id, name)) for name in names]
        last = min((row.checked if row else 0 for row in rows), default=0)
        for (raw,) in self.db.execute(
            "SELECT document FROM checkpoints WHERE number <= ? ORDER BY number DESC", (last,)
        ):
            document = RecorderCheckpoint.decode(raw)
            if any(document.end(name) is None for name in names):
                # Earlier checkpoints cover no more streams than this one.
                return
            yield document

    def nodes(self, row: IndexedStream) -> CachedNodes:
        if row.stream_no not in self._nodes:
            file = NodeFile.for_reading(self._generation.nodes(row.stream_no))
            self._nodes[row.stream_no] = CachedNodes(self._closing.enter_context(file))
        return self._nodes[row.stream_no]

    def pairs(self, places: Sequence[int]) -> Iterator[PairRow]:
        """Yield the signed bytes at these places, in the order given."""
        for start in range(0, len(places), _PAIR_BATCH):
            batch = places[start : start + _PAIR_BATCH]
            marks = ", ".join("?" * len(batch))
            query = f"SELECT * FROM pairs WHERE place IN ({marks})"  # noqa: S608
            pairs = {row[0]: PairRow(*row) for row in self.db.execute(query, batch)}
            for place in batch:
                if place not in pairs:
                    raise BadIndex(f"the index lacks the message at {place}; {tables.REMEDY}")
                yield pairs[place]

    def _root_at(self, row: IndexedStream, size: int) -> bytes:
        try:
            return mmr.peaks_at(self.nodes(row), size).root()
        except LookupError as error:
            raise BadIndex(f"{row.name}: {error}; {tables.REMEDY}") from error

    def _number(self, checkpoint: RecorderCheckpoint) -> int:
        row = self.db.execute(
            "SELECT number FROM checkpoints WHERE checkpoint_id = ?", (checkpoint.checkpoint_id,)
        ).fetchone()
        if row is None:
            raise NotReached("the index has not reached this checkpoint yet; try again later")
        return int(row[0])


class CachedNodes:
    """Nodes of a file with a cache, since the high nodes are part of most proofs."""

    def __init__(self, file: NodeFile) -> None:
        self._file = file
        self._known: dict[tuple[int, int], bytes] = {}

    def node(self, height: int, index: int) -> bytes:
        hash_ = self._known.get((height, index))
        if hash_ is None:
            if len(self._known) >= _CACHED_NODES:
                self._known.clear()
            hash_ = self._known[height, index] = self._file.node(height, index)
        return hash_


@contextmanager
def snapshot(home: IndexHome) -> Iterator[Snapshot]:
    generation = home.current()
    with ExitStack() as closing:
        db = closing.enter_context(tables.connected(generation, writable=False))
        db.execute("BEGIN")
        yield Snapshot(generation, db, closing)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLag:
    """How far a stream is indexed; ``seconds`` is between the last indexed entry and the head."""

    hub_id: bytes
    stream: str
    indexed: int
    head: int
    unread: int
    wrong_stream: int
    entries: int
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """``asked_sec`` is the time since the hub last stated its heads; later entries are not counted.

    ``checkpoint`` is the latest recorder checkpoint that every stream has reached.
    """

    hub_id: bytes
    streams: tuple[StreamLag, ...]
    asked_sec: int | None
    trouble: str | None
    alarms: tuple[str, ...]
    checkpoints: int
    checkpoint: bytes | None

    @property
    def entries(self) -> int:
        """The lag over all streams, in entries."""
        return sum(stream.entries for stream in self.streams)

    @property
    def seconds(self) -> int:
        """The lag of the stream that is furthest behind."""
        return max((stream.seconds for stream in self.streams), default=0)

    def document(self) -> dict[str, Any]:
        return {
            "hub_id": self.hub_id.hex(),
            "lag_entries": self.entries,
            "lag_seconds": self.seconds,
            "asked_seconds_ago": self.asked_sec,
            "trouble": self.trouble,
            "alarms": list(self.alarms),
            "checkpoints": self.checkpoints,
            "checkpoint": self.checkpoint.hex() if self.checkpoint else None,
            "streams": [
                {
                    "hub_id": stream.hub_id.hex(),
                    "stream": stream.stream,
                    "indexed": stream.indexed,
                    "head": stream.head,
                    "unread": stream.unread,
                    "wrong_stream": stream.wrong_stream,
                    "lag_entries": stream.entries,
                    "lag_seconds": stream.seconds,
                }
                for stream in self.streams
            ],
        }


def status(home: IndexHome, now: int) -> IndexStatus:
    with tables.connected(home.current(), writable=False) as db:
        db.execute("BEGIN")
        meta, rows = tables.meta(db), tables.streams(db)
        agreed = min((row.checked for row in rows), default=0)
        (known,) = db.execute("SELECT coalesce(max(number), 0) FROM checkpoints").fetchone()
        reached = db.execute(
            "SELECT checkpoint_id FROM checkpoints WHERE number = ?", (agreed,)
        ).fetchone()
        wrong = {row.stream_no: misplaced(db, row, 1, row.position).count for row in rows}
        alarms = tables.alarms(db)
    asked = meta.get("asked_at")
    return IndexStatus(
        hub_id=meta["hub_id"],
        streams=tuple(_lag(row, wrong[row.stream_no]) for row in rows),
        asked_sec=None if asked is None else max(now - asked, 0),
        trouble=meta.get("trouble"),
        alarms=alarms,
        checkpoints=known,
        checkpoint=reached[0] if reached else None,
    )


def _lag(row: IndexedStream, wrong: int) -> StreamLag:
    behind = max(row.head_seq - row.position, 0)
    # Of a stream without indexed entries the first time is unknown, so 1 second is reported.
    seconds = max(row.head_ts - row.last_ts, 0) if behind and row.position else int(behind > 0)
    return StreamLag(
        hub_id=row.hub_id,
        stream=row.name,
        indexed=row.position,
        head=row.head_seq,
        unread=row.unread,
        wrong_stream=wrong,
        entries=behind,
        seconds=seconds,
    )
