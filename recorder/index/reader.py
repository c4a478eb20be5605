"""An index as it stood at one moment, for one query: what is added meanwhile is not seen.

How an index stands: how far behind the hub it is, and what is wrong with it.
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
_PAIRS_AT_A_TIME: Final = 500


class IndexAlarm(Untrusted):
    """The hub's checkpoints contradict its log: nothing is answered before that is cleared up."""


class NotReached(VeenError):
    """The index has not come as far as the checkpoint, or knows nothing of it yet."""


class Snapshot:
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

    def refuse_alarms(self) -> None:
        row = self.db.execute("SELECT told FROM alarms ORDER BY number").fetchone()
        if row is not None:
            raise IndexAlarm(f"{row[0]}; queries are stopped")

    def reached(self, checkpoint: RecorderCheckpoint, name: str) -> tuple[IndexedStream, StreamEnd]:
        """A stream whose root at the checkpoint was compared with ours, and is so still."""
        end = checkpoint.end(name)
        if end is None:
            raise NotReached(f"the checkpoint was made before {name} was known; wait for the next")
        row = self._rows.get((checkpoint.hub_id, name))
        if row is None or row.position < end.last_seq or row.checked < self._number(checkpoint):
            at = row.position if row else 0
            raise NotReached(
                f"{name} is indexed up to {at}, the checkpoint ends at {end.last_seq}; wait, or "
                "see veen recorder index status"
            )
        if end.last_seq and self._root_at(row, end.last_seq) != end.mmr_root:
            raise Untrusted(f"{name}: the nodes are not those of the checkpoint; {tables.REMEDY}")
        return row, end

    def latest(self, names: Sequence[str]) -> RecorderCheckpoint | None:
        """The latest checkpoint that speaks of these streams and that all of them have reached."""
        return next(self.agreed(names), None)

    def agreed(self, names: Sequence[str]) -> Iterator[RecorderCheckpoint]:
        """That one, and those before it that speak of these streams too, the latest first."""
        rows = [self._rows.get((self.hub_id, name)) for name in names]
        last = min((row.checked if row else 0 for row in rows), default=0)
        for (raw,) in self.db.execute(
            "SELECT document FROM checkpoints WHERE number <= ? ORDER BY number DESC", (last,)
        ):
            document = RecorderCheckpoint.decode(raw)
            if any(document.end(name) is None for name in names):
                # Those before it know of no more streams than this one.
                return
            yield document

    def nodes(self, row: IndexedStream) -> CachedNodes:
        if row.stream_no not in self._nodes:
            file = NodeFile.for_reading(self._generation.nodes(row.stream_no))
            self._nodes[row.stream_no] = CachedNodes(self._closing.enter_context(file))
        return self._nodes[row.stream_no]

    def pairs(self, places: Sequence[int]) -> Iterator[PairRow]:
        """The signed bytes behind places, in the order they are asked for."""
        for start in range(0, len(places), _PAIRS_AT_A_TIME):
            some = places[start : start + _PAIRS_AT_A_TIME]
            marks = ", ".join("?" * len(some))
            query = f"SELECT * FROM pairs WHERE place IN ({marks})"  # noqa: S608
            result = {row[0]: PairRow(*row) for row in self.db.execute(query, some)}
            for place in some:
                if place not in result:
                    raise BadIndex(f"the index lacks the message at {place}; {tables.REMEDY}")
                yield result[place]

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
            raise NotReached("the index has not learnt of this checkpoint yet; wait a little")
        return int(row[0])


class CachedNodes:
    """Nodes of a file; those high up stand in most proofs."""

    def __init__(self, file: NodeFile) -> None:
        self._file = file
        self._known: dict[tuple[int, int], bytes] = {}

    def node(self, height: int, index: int) -> bytes:
        value = self._known.get((height, index))
        if value is None:
            if len(self._known) >= _CACHED_NODES:
                self._known.clear()
            value = self._known[height, index] = self._file.node(height, index)
        return value


@contextmanager
def snapshot(home: IndexHome) -> Iterator[Snapshot]:
    generation = home.current()
    with ExitStack() as closing:
        db = closing.enter_context(tables.connected(generation, writable=False))
        db.execute("BEGIN")
        yield Snapshot(generation, db, closing)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLag:
    """How far one stream is indexed. ``seconds`` is between what is indexed and what is there."""

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
    """``asked_sec`` is since the hub last told its ends; what came after that is not counted.

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
        said, rows = tables.meta(db), tables.streams(db)
        agreed = min((row.checked for row in rows), default=0)
        (known,) = db.execute("SELECT count(*) FROM checkpoints").fetchone()
        reached = db.execute(
            "SELECT checkpoint_id FROM checkpoints WHERE number = ?", (agreed,)
        ).fetchone()
        wrong = {row.stream_no: misplaced(db, row, 1, row.position).count for row in rows}
        alarms = tuple(
            detail for (detail,) in db.execute("SELECT told FROM alarms ORDER BY number")
        )
    asked = said.get("asked_at")
    return IndexStatus(
        hub_id=said["hub_id"],
        streams=tuple(_lag(row, wrong[row.stream_no]) for row in rows),
        asked_sec=None if asked is None else max(now - asked, 0),
        trouble=said.get("trouble"),
        alarms=alarms,
        checkpoints=known,
        checkpoint=reached[0] if reached else None,
    )


def _lag(row: IndexedStream, wrong: int) -> StreamLag:
    behind = max(row.head_seq - row.position, 0)
    # A stream of which nothing is indexed is behind by all the time there is; its first is unknown.
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
