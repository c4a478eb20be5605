"""Whether an index agrees with one learnt again from the log, table by table."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

# Numbers of labels and clients are the index's own: rows are compared by what these stand for.
_TABLES: Final = {
    "labels": "SELECT label, epoch, head_seq, head_ts, chunk_start FROM {db}.labels WHERE head_seq",
    "entries": (
        "SELECT label, seq, e.chunk_start, at, hub_ts, client_id, e.client_seq, leaf"
        " FROM {db}.entries e JOIN {db}.labels l ON l.label_no = e.label_no"
        " LEFT JOIN {db}.clients c ON c.client_no = e.client_no AND c.label_no = e.label_no"
    ),
    "chunks": (
        "SELECT label, start_seq, end_seq, size, last_ts"
        " FROM {db}.chunks c JOIN {db}.labels l ON l.label_no = c.label_no"
    ),
    "leaves": (
        "SELECT label, seq, leaf FROM {db}.leaves v JOIN {db}.labels l ON l.label_no = v.label_no"
    ),
    "checkpoints": (
        "SELECT label, upto_seq FROM {db}.checkpoints c"
        " JOIN {db}.labels l ON l.label_no = c.label_no"
    ),
    "clients": (
        "SELECT label, client_id, client_seq, prev_ack FROM {db}.clients c"
        " JOIN {db}.labels l ON l.label_no = c.label_no WHERE c.client_seq"
    ),
}
_WHOLE_TABLES: Final = {
    "buckets": "SELECT auth_ref, tokens, at FROM {db}.buckets",
    "tokens": "SELECT auth_ref, token, issued_at, seq FROM {db}.tokens",
}
_STREAMS: Final = "SELECT stream_id, name, record FROM {db}.streams"
_SCHEMA: Final = "SELECT type, name, tbl_name, sql FROM {db}.sqlite_master"
_REACHED: Final = (
    "SELECT label, min(head_seq, max(seq)) FROM labels JOIN entries USING (label_no)"
    " GROUP BY label_no HAVING typeof(label) = 'blob'"
)
# Damaged text in a schema is decoded by the sqlite3 module itself.
_UNREADABLE: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
# A closed label ended with its epoch: it has no open chunk, and its stream has epochs.
_WRONGLY_CLOSED: Final = (
    "SELECT label FROM old.labels WHERE closed AND (epoch = 0 OR chunk_start <= head_seq)"
)
# A stream may have become known after the label: then the index says of the label what it knew.
_WRONG_STREAM: Final = (
    "SELECT o.label FROM old.labels o JOIN main.labels n ON o.label = n.label"
    " WHERE o.stream_id IS NOT NULL AND o.stream_id IS NOT n.stream_id"
)


def disagreements(
    fresh: Path, old: Path, unknown: Collection[bytes], configured: Collection[bytes]
) -> list[str]:
    """What the old index says that the fresh one does not, or the other way round.

    Labels in ``unknown`` are left out, and with them what spans all labels. Streams that are
    ``configured`` need not be in an index.
    """
    if not old.is_file():
        return [f"{old.name} is missing"]
    db = _open(fresh)
    try:
        db.execute("ATTACH ? AS old", (f"{old.as_uri()}?mode=ro",))
        return [*_damage(db), *_differing(db, unknown, configured)]
    except _UNREADABLE as error:
        return [f"{old.name} cannot be read ({error})"]
    finally:
        db.close()


def acknowledged(path: Path) -> dict[bytes, int]:
    """How far each label reached, by an index that is sound and agrees with itself."""
    if not path.is_file():
        return {}
    db = _open(path)
    try:
        if db.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            return {}
        return {bytes(label): int(seq) for label, seq in db.execute(_REACHED)}
    except (*_UNREADABLE, TypeError):
        return {}
    finally:
        db.close()


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)


def _damage(db: sqlite3.Connection) -> list[str]:
    found = [row[0] for row in db.execute("PRAGMA old.integrity_check(1)")]
    if found != ["ok"]:
        return [f"index.sqlite is damaged ({found[0]})"]
    return ["the schema of index.sqlite differs"] if _either(db, _SCHEMA) else []


def _differing(
    db: sqlite3.Connection, unknown: Collection[bytes], configured: Collection[bytes]
) -> list[str]:
    found = []
    for table, select in _TABLES.items():
        labels = {row[0] for row in _either(db, select)} - set(unknown)
        found += [f"{table} of label {label} differ" for label in _sorted(labels)]
    for select, what in ((_WRONGLY_CLOSED, "is closed"), (_WRONG_STREAM, "has another stream")):
        labels = {row[0] for row in db.execute(select)} - set(unknown)
        found += [f"label {label} {what}" for label in _sorted(labels)]
    if unknown:
        return found
    if db.execute("SELECT * FROM old.meta").fetchall() != db.execute(
        "SELECT * FROM main.meta"
    ).fetchall():  # fmt: skip
        found.append("meta differs")
    found += [f"{table} differ" for table, select in _WHOLE_TABLES.items() if _either(db, select)]
    streams = [row for row in _either(db, _STREAMS) if row[0] not in configured]
    return [*found, "streams differ"] if streams else found


def _either(db: sqlite3.Connection, select: str) -> list[tuple[Any, ...]]:
    """Rows that only one of the two has."""
    old, new = select.format(db="old"), select.format(db="main")
    return [
        *db.execute(f"SELECT * FROM ({old}) EXCEPT SELECT * FROM ({new})"),  # noqa: S608 - constants
        *db.execute(f"SELECT * FROM ({new}) EXCEPT SELECT * FROM ({old})"),  # noqa: S608 - constants
    ]


def _sorted(labels: set[Any]) -> list[str]:
    """Labels in hex; a damaged index may hold anything in their place."""
    return sorted(one.hex() if isinstance(one, bytes) else repr(one) for one in labels)
