"""Which events stand in another stream than the one of their type (SDR0 3.2.2).

The emitter keeps an event type to its stream, but any program with a capability can write. So the
index says of each event whether it stands where the stream map has its type, or had it before a
migration that was recorded. The map that is accepted lies beside the generations of the index: a
map that gives a known type another stream is accepted only once the migration is in the log.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from recorder.emit.migration import RENAMED, SPLIT, Migration, migrations
from recorder.index import tables
from recorder.index.tables import IndexedStream, IndexHome, transaction
from recorder.index.writer import IndexWriter
from recorder.stream_map import CHANGES, RecorderStreamMap
from veen.digest import h
from veen.errors import Malformed, VeenError
from veen.events import RecordEvent, is_import
from veen.system import durable
from veen.wire import canonical_json
from veen.wire.body import AnyItem

WRONG_STREAM: Final = "WRONG_STREAM"
"""The fault of an event whose type belongs to another stream."""

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS misplaced (place INTEGER PRIMARY KEY, fault TEXT NOT NULL) STRICT"
)
_HISTORY: Final = (
    "SELECT e.event_type, e.principal_id, e.payload FROM events e JOIN streams s USING (stream_no) "
    "WHERE s.hub_id = ? AND s.name = ? AND e.event_type IN (?, ?) AND e.fault IS NULL "
    "ORDER BY e.place"
)
_AT_ONCE: Final = 100_000
"""How many places of a stream are judged in one turn."""

Types = Mapping[str, str]
"""The stream of each event type."""


class MapChanged(VeenError):
    """A stream map that gives a known event type another stream, and no migration tells of it."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """How many events of a range stand in the wrong stream, and the first of them."""

    stream: str
    count: int
    first_seq: int

    def document(self) -> dict[str, Any]:
        return {"fault": WRONG_STREAM, **asdict(self)}


def types_of(streams: RecorderStreamMap) -> dict[str, str]:
    return {kind: stream.name for stream in streams.streams for kind in stream.event_types}


def accepted(home: IndexHome) -> dict[str, str]:
    """The map that was accepted last, with types that are in no settings any more."""
    try:
        document = json.loads(home.stream_map.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _damaged(home, error) from error
    if not isinstance(document, dict) or not all(
        isinstance(item, str) for item in document.values()
    ):
        raise _damaged(home, "not a map of event types to streams")
    return document


def unlogged(before: Types, now: Types, history: Sequence[Migration]) -> list[str]:
    """Event types that have another stream now, and no chain of migrations leads there."""
    return sorted(
        kind
        for kind, stream in now.items()
        if kind in before and _after(kind, before[kind], history) != stream
    )


def refuse_changed(home: IndexHome, streams: RecorderStreamMap) -> None:
    """MapChanged where the settings move an event type and the index knows of no migration."""
    before, now = accepted(home), types_of(streams)
    if not unlogged(before, now, ()):
        # Recording does not depend on an index that may be damaged.
        return
    with tables.connected(home.current(), writable=False) as db:
        hub_id = bytes(tables.meta(db)["hub_id"])
        history = read_history(db, hub_id, streams.admins)
    kinds = unlogged(before, now, history)
    if kinds:
        raise MapChanged(_describe(kinds, before, now))


def read_history(db: sqlite3.Connection, hub_id: bytes, admins: Sequence[bytes]) -> list[Migration]:
    """The migrations that admins have recorded, as far as they are indexed."""
    events = []
    for kind, principal, payload in db.execute(_HISTORY, (hub_id, CHANGES, RENAMED, SPLIT)):
        if principal in admins:
            events.append(
                RecordEvent(
                    subject_id="", principal_id=principal, event_type=kind, event_time=0, origin="",
                    payload=AnyItem(payload),
                )
            )  # fmt: skip
    return list(_readable(events))


def misplaced(db: sqlite3.Connection, row: IndexedStream, from_seq: int, to_seq: int) -> Misplaced:
    """Of one stream, from one place to another; nothing where no map was ever given."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'misplaced'").fetchone():
        return Misplaced(row.name, 0, 0)
    count, first = db.execute(
        "SELECT count(*), min(place) FROM misplaced WHERE place BETWEEN ? AND ?",
        (row.place(from_seq), row.place(to_seq)),
    ).fetchone()
    return Misplaced(row.name, count, tables.seq_of(first) if count else 0)


class PlacementCheck:
    """Judges what the writer has indexed; the caller holds the lock of the index."""

    def __init__(self, writer: IndexWriter, streams: RecorderStreamMap) -> None:
        self._writer = writer
        self._streams = streams
        self._home = IndexHome(writer.generation.root.parent)
        self.trouble: str | None = None

    def turn(self) -> None:
        """Take in the map and its migrations, then judge what came since."""
        writer, now = self._writer, types_of(self._streams)
        before = accepted(self._home)
        history = read_history(writer.db, writer.hub_id, self._streams.admins)
        kinds = unlogged(before, now, history)
        self.trouble = _describe(kinds, before, now) if kinds else None
        types = before | {kind: item for kind, item in now.items() if kind not in kinds}
        if types != before:
            durable.write(self._home.stream_map, canonical_json.encode(types))
        self._begin(types, history)
        for row in writer.streams():
            # What was imported has the types of its origin, whose map is not ours.
            if row.hub_id == writer.hub_id and not is_import(row.name):
                self._judge(row, types, history)

    def _begin(self, types: Types, history: Sequence[Migration]) -> None:
        """With another map or history, all that was judged is judged again."""
        detail = [dict(types), [migration.payload() for migration in history]]
        name = h(canonical_json.encode(detail)).hex()
        if tables.meta(self._writer.db).get("placement") == name:
            return
        with transaction(self._writer.db):
            self._writer.db.execute(_TABLE)
            self._writer.db.execute("DELETE FROM misplaced")
            self._writer.db.execute("DELETE FROM meta WHERE key LIKE 'placed %'")
            self._writer.note("placement", name)

    def _judge(self, row: IndexedStream, types: Types, history: Sequence[Migration]) -> None:
        done = int(tables.meta(self._writer.db).get(f"placed {row.stream_no}", 0))
        upto = min(row.position, done + _AT_ONCE)
        if upto <= done:
            return
        rows = self._writer.db.execute(
            "SELECT place, event_type FROM events WHERE place BETWEEN ? AND ? AND fault IS NULL",
            (row.place(done + 1), row.place(upto)),
        )
        own = {kind for kind, name in types.items() if name == row.name}
        wrong = [
            (place, WRONG_STREAM)
            for place, kind in rows
            if kind not in own and _is_wrong(row.name, tables.seq_of(place), kind, types, history)
        ]
        with transaction(self._writer.db):
            self._writer.db.executemany("INSERT OR REPLACE INTO misplaced VALUES (?, ?)", wrong)
            self._writer.note(f"placed {row.stream_no}", upto)


def _is_wrong(stream: str, seq: int, kind: str, types: Types, history: Sequence[Migration]) -> bool:
    """Whether a type that is not the stream's today was not its own at that place either.

    Of a stream that no map names, only types of other streams are wrong.
    """
    for migration in history:
        if migration.source == stream and seq <= migration.last_seq and migration.takes_away(kind):
            return False
    return kind in types or stream in types.values()


def _after(kind: str, stream: str, history: Sequence[Migration]) -> str:
    for migration in history:
        if migration.source == stream and migration.takes_away(kind):
            stream = next(each.stream for each in migration.targets if kind in each.event_types)
    return stream


def _readable(events: Iterable[RecordEvent]) -> Iterable[Migration]:
    for event in events:
        try:
            yield from migrations([event])
        except Malformed:
            # An event that tells of no migration explains nothing.
            continue


def _describe(kinds: Sequence[str], before: Types, now: Types) -> str:
    kind, more = kinds[0], f" (and {len(kinds) - 1} more types)" if len(kinds) > 1 else ""
    old, new = before[kind], now[kind]
    return (
        f"the stream map moves event type {kind!r}{more} from {old} to {new}, expected a migration "
        f"event in {CHANGES}, got none: record it with veen recorder migrate rename "
        f"--from {shlex.quote(old)} --to {shlex.quote(new)} --last-seq N (or split), "
        "or put the map back"
    )


def _damaged(home: IndexHome, error: object) -> Malformed:
    return Malformed(
        f"{home.stream_map}: {error}; restore it, or remove it to accept the map of the settings"
    )
