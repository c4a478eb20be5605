"""An index as it stood at one moment, for one query: what is added meanwhile is not seen."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from recorder.index import tables
from recorder.index.home import Generation, IndexHome
from recorder.index.tables import BadIndex, PairRow, StreamRow
from veen import mmr
from veen.errors import Untrusted, VeenError
from veen.nodes import NodeFile
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd

_CACHED_NODES: Final = 1 << 16
_PAIRS_AT_A_TIME: Final = 500


class IndexAlarm(Untrusted):
    """The hub's checkpoints contradict its log: nothing is answered before that is cleared up."""


class NotReached(VeenError):
    """The index has not come as far as the checkpoint, or knows nothing of it yet."""


class Snapshot:
    def __init__(self, generation: Generation, db: sqlite3.Connection, closing: ExitStack) -> None:
        self.db = db
        self.hub_id = bytes(tables.meta(db)["hub_id"])
        self._generation = generation
        self._closing = closing
        self._rows = {(row.hub_id, row.name): row for row in tables.streams(db)}
        self._nodes: dict[int, CachedNodes] = {}

    def streams(self) -> list[StreamRow]:
        return list(self._rows.values())

    def refuse_alarms(self) -> None:
        found = self.db.execute("SELECT told FROM alarms ORDER BY number").fetchone()
        if found is not None:
            raise IndexAlarm(f"{found[0]}; queries are stopped")

    def reached(self, checkpoint: RecorderCheckpoint, name: str) -> tuple[StreamRow, StreamEnd]:
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

    def nodes(self, row: StreamRow) -> CachedNodes:
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
            found = {one[0]: PairRow(*one) for one in self.db.execute(query, some)}
            for place in some:
                if place not in found:
                    raise BadIndex(f"the index lacks the message at {place}; {tables.REMEDY}")
                yield found[place]

    def _root_at(self, row: StreamRow, size: int) -> bytes:
        try:
            return mmr.peaks_at(self.nodes(row), size).root()
        except LookupError as error:
            raise BadIndex(f"{row.name}: {error}; {tables.REMEDY}") from error

    def _number(self, checkpoint: RecorderCheckpoint) -> int:
        found = self.db.execute(
            "SELECT number FROM checkpoints WHERE checkpoint_id = ?", (checkpoint.checkpoint_id,)
        ).fetchone()
        if found is None:
            raise NotReached("the index has not learnt of this checkpoint yet; wait a little")
        return int(found[0])


class CachedNodes:
    """Nodes of a file; those high up stand in most proofs."""

    def __init__(self, file: NodeFile) -> None:
        self._file = file
        self._known: dict[tuple[int, int], bytes] = {}

    def node(self, height: int, index: int) -> bytes:
        found = self._known.get((height, index))
        if found is None:
            if len(self._known) >= _CACHED_NODES:
                self._known.clear()
            found = self._known[height, index] = self._file.node(height, index)
        return found


@contextmanager
def snapshot(home: IndexHome) -> Iterator[Snapshot]:
    generation = home.current()
    with ExitStack() as closing:
        db = closing.enter_context(tables.connected(generation, writable=False))
        db.execute("BEGIN")
        yield Snapshot(generation, db, closing)
