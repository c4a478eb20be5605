"""How an index stands: how far behind the hub it is, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recorder.index import tables
from recorder.index.home import IndexHome
from recorder.index.placement import misplaced
from recorder.index.tables import StreamRow


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
        return sum(one.entries for one in self.streams)

    @property
    def seconds(self) -> int:
        """The lag of the stream that is furthest behind."""
        return max((one.seconds for one in self.streams), default=0)

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
                    "hub_id": one.hub_id.hex(),
                    "stream": one.stream,
                    "indexed": one.indexed,
                    "head": one.head,
                    "unread": one.unread,
                    "wrong_stream": one.wrong_stream,
                    "lag_entries": one.entries,
                    "lag_seconds": one.seconds,
                }
                for one in self.streams
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
        alarms = tuple(told for (told,) in db.execute("SELECT told FROM alarms ORDER BY number"))
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


def _lag(row: StreamRow, wrong: int) -> StreamLag:
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
