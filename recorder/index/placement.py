"""Events that are in a stream other than the one the stream map gives their type (SDR0 3.2.2).

The emitter sends an event type to its stream, but any program with a capability can write. So the
index records for each event whether it is in the stream that the map gives its type, or gave it
before a recorded migration. The accepted map is stored beside the generations of the index: a map
that moves a known type to another stream is accepted only once the migration is in the log.
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
from veen.errors import LATER_RELEASE, Malformed, VeenError, WrongVersion
from veen.events import RecordEvent, is_import
from veen.system import durable
from veen.wire import canonical_json
from veen.wire.body import AnyItem

_VERSION: Final = 1
WRONG_STREAM: Final = "WRONG_STREAM"
"""The fault of an event whose type is mapped to another stream."""

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS misplaced (place INTEGER PRIMARY KEY, fault TEXT NOT NULL) STRICT"
)
_HISTORY: Final = (
    "SELECT e.event_type, e.principal_id, e.payload FROM events e JOIN streams s USING (stream_no) "
    "WHERE s.hub_id = ? AND s.name = ? AND e.event_type IN (?, ?) AND e.fault IS NULL "
    "ORDER BY e.place"
)
_BATCH: Final = 100_000
"""How many positions of a stream are checked in one turn."""

Types = Mapping[str, str]
"""The stream of each event type."""


class MapChanged(VeenError):
    """A stream map that moves a known event type without a recorded migration."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """How many events of a range are in the wrong stream, and the first of them."""

    stream: str
    count: int
    first_seq: int

    def document(self) -> dict[str, Any]:
        return {"fault": WRONG_STREAM, **asdict(self)}


def types_of(streams: RecorderStreamMap) -> dict[str, str]:
    return {kind: stream.name for stream in streams.streams for kind in stream.event_types}


def accepted(home: IndexHome) -> dict[str, str]:
    """Read the map that was accepted last, including types that are no longer configured."""
    try:
        document = json.loads(home.stream_map.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _damaged(home, error) from error
    return _types(home, document)


def _types(home: IndexHome, document: Any) -> dict[str, str]:
    """The map of a document; one of an earlier version is the map alone."""
    is_current = isinstance(document, dict) and isinstance(document.get("types"), dict)
    if is_current and document.get("version") != _VERSION:
        raise WrongVersion(
            f"{home.stream_map}: expected version {_VERSION}, got {document.get('version')!r}: "
            f"{LATER_RELEASE}"
        )
    types = document["types"] if is_current else document
    if not isinstance(types, dict) or not all(isinstance(name, str) for name in types.values()):
        raise _damaged(home, "expected a map of event types to streams")
    return types


def unlogged(before: Types, now: Types, history: Sequence[Migration]) -> list[str]:
    """The event types whose stream has changed without migrations that lead there."""
    return sorted(
        kind
        for kind, stream in now.items()
        if kind in before and _after(kind, before[kind], history) != stream
    )


def refuse_changed(home: IndexHome, streams: RecorderStreamMap) -> None:
    """Raise MapChanged where the settings move an event type without an indexed migration."""
    before, now = accepted(home), types_of(streams)
    if not unlogged(before, now, ()):
        # Without a change, recording must not depend on an index that may be damaged.
        return
    with tables.connected(home.current(), writable=False) as db:
        hub_id = bytes(tables.meta(db)["hub_id"])
        history = read_history(db, hub_id, streams.admins)
    kinds = unlogged(before, now, history)
    if kinds:
        raise MapChanged(_format_change(kinds, before, now))


def read_history(db: sqlite3.Connection, hub_id: bytes, admins: Sequence[bytes]) -> list[Migration]:
    """The indexed migrations that admins have recorded."""
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
    """Count misplaced events in a range of a stream; none if no map was ever given."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'misplaced'").fetchone():
        return Misplaced(row.name, 0, 0)
    count, first = db.execute(
        "SELECT count(*), min(place) FROM misplaced WHERE place BETWEEN ? AND ?",
        (row.place(from_seq), row.place(to_seq)),
    ).fetchone()
    return Misplaced(row.name, count, tables.seq_of(first) if count else 0)


class PlacementCheck:
    """Checks the placement of indexed events; the caller holds the lock of the index."""

    def __init__(self, writer: IndexWriter, streams: RecorderStreamMap) -> None:
        self._writer = writer
        self._streams = streams
        self._home = IndexHome(writer.generation.root.parent)
        self.trouble: str | None = None

    def turn(self) -> None:
        """Load the map and its migrations, then check the events indexed since."""
        writer, now = self._writer, types_of(self._streams)
        before = accepted(self._home)
        history = read_history(writer.db, writer.hub_id, self._streams.admins)
        kinds = unlogged(before, now, history)
        self.trouble = _format_change(kinds, before, now) if kinds else None
        types = before | {kind: stream for kind, stream in now.items() if kind not in kinds}
        if types != before:
            content = canonical_json.encode({"version": _VERSION, "types": types})
            durable.write(self._home.stream_map, content)
        self._begin(types, history)
        for row in writer.streams():
            # Imported events follow the stream map of their origin.
            if row.hub_id == writer.hub_id and not is_import(row.name):
                self._check(row, types, history)

    def _begin(self, types: Types, history: Sequence[Migration]) -> None:
        """Check everything again when the map or the migrations have changed."""
        document = [dict(types), [migration.payload() for migration in history]]
        name = h(canonical_json.encode(document)).hex()
        if tables.meta(self._writer.db).get("placement") == name:
            return
        with transaction(self._writer.db):
            self._writer.db.execute(_TABLE)
            self._writer.db.execute("DELETE FROM misplaced")
            self._writer.db.execute("DELETE FROM meta WHERE key LIKE 'placed %'")
            self._writer.note("placement", name)

    def _check(self, row: IndexedStream, types: Types, history: Sequence[Migration]) -> None:
        done = int(tables.meta(self._writer.db).get(f"placed {row.stream_no}", 0))
        upto = min(row.position, done + _BATCH)
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
    """Whether a type is not mapped to the stream now and was not at that position either.

    In a stream that no map names, only types of other streams are wrong.
    """
    for migration in history:
        if migration.source == stream and seq <= migration.last_seq and migration.takes_away(kind):
            return False
    return kind in types or stream in types.values()


def _after(kind: str, stream: str, history: Sequence[Migration]) -> str:
    for migration in history:
        if migration.source == stream and migration.takes_away(kind):
            targets = (target for target in migration.targets if kind in target.event_types)
            stream = next(targets).stream
    return stream


def _readable(events: Iterable[RecordEvent]) -> Iterable[Migration]:
    for event in events:
        try:
            yield from migrations([event])
        except Malformed:
            # A malformed migration event explains no change.
            continue


def _format_change(kinds: Sequence[str], before: Types, now: Types) -> str:
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
