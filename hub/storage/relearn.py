"""Learning the index again from the entries of a log, and comparing two indexes (spec 12).

``Relearner`` fills an empty index; ``disagreements`` compares it with an existing one by table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from hub.registry import Registry
from hub.storage.index import (
    SCHEMA_VERSION,
    ChunkRow,
    CommitCursors,
    EntryRow,
    Index,
    added_since,
    leaf_key,
)
from hub.storage.log_scan import Logged, learn_control
from veen.captoken import CapToken, TokenBucket
from veen.invariants import ClientCursor, Grant
from veen.label import EpochLabels, routing_key
from veen.limits import Limits
from veen.log.entry import ControlRecord, StreamRecord
from veen.system import sqlite

# label_no and client_no differ between indexes: rows are compared by label and client_id.
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
    "open_leaves": (
        "SELECT label, seq, leaf FROM {db}.open_leaves v"
        " JOIN {db}.labels l ON l.label_no = v.label_no"
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
_META: Final = "SELECT key, value FROM {db}.meta WHERE key <> 'version'"
_STREAMS: Final = "SELECT stream_id, name, record FROM {db}.streams"
_SCHEMA: Final = "SELECT type, name, tbl_name, sql FROM {db}.sqlite_master"
_REACHED: Final = (
    "SELECT label, min(head_seq, max(seq)) FROM labels JOIN entries USING (label_no)"
    " GROUP BY label_no HAVING typeof(label) = 'blob'"
)
# The sqlite3 module decodes the schema, which may be damaged.
_UNREADABLE: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
# A closed label ended with its epoch: it has no open chunk, and its stream has epochs.
_WRONGLY_CLOSED: Final = (
    "SELECT label FROM old.labels WHERE closed AND (epoch = 0 OR chunk_start <= head_seq)"
)
# A stream may have been registered after its label; the old index then has no stream for it.
_WRONG_STREAM: Final = (
    "SELECT o.label FROM old.labels o JOIN main.labels n ON o.label = n.label"
    " WHERE o.stream_id IS NOT NULL AND o.stream_id IS NOT n.stream_id"
)


def disagreements(
    fresh: Path, old: Path, unknown: Collection[bytes], configured: Collection[bytes]
) -> list[str]:
    """The differences between the old index and the fresh one.

    Labels in ``unknown`` are left out, and with them the tables that span labels. Streams in
    ``configured`` need not be in an index.
    """
    if not old.is_file():
        return [f"{old.name} is missing"]
    db = sqlite.connect_read_only(fresh)
    try:
        db.execute("ATTACH ? AS old", (f"{old.as_uri()}?mode=ro",))
        return [*_damage(db), *_differing(db, unknown, configured)]
    except _UNREADABLE as error:
        return [f"{old.name} cannot be read ({error})"]
    finally:
        db.close()


def acknowledged(path: Path) -> dict[bytes, int]:
    """The last stream_seq of each label by an index; empty if it is missing or damaged."""
    if not path.is_file():
        return {}
    db = sqlite.connect_read_only(path)
    try:
        if db.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            return {}
        return {bytes(label): int(seq) for label, seq in db.execute(_REACHED)}
    except (*_UNREADABLE, TypeError):
        return {}
    finally:
        db.close()


def _damage(db: sqlite3.Connection) -> list[str]:
    problems = [row[0] for row in db.execute("PRAGMA old.integrity_check(1)")]
    if problems != ["ok"]:
        return [f"index.sqlite is damaged ({problems[0]})"]
    # The next start adds what an earlier version lacks.
    expected = list(db.execute(_SCHEMA.format(db="main")))
    absent = added_since(_version(db))
    expected = [row for row in expected if not absent & {row[1], row[2]}]
    differs = sorted(db.execute(_SCHEMA.format(db="old")), key=repr) != sorted(expected, key=repr)
    return ["the schema of index.sqlite differs"] if differs else []


def _version(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT value FROM old.meta WHERE key = 'version'").fetchone()
    return row[0] if row and type(row[0]) is int else 0


def _differing(
    db: sqlite3.Connection, unknown: Collection[bytes], configured: Collection[bytes]
) -> list[str]:
    differences, absent = [], added_since(_version(db))
    for table, select in _TABLES.items():
        if table in absent:
            continue
        labels = {row[0] for row in _symmetric_difference(db, select)} - set(unknown)
        differences += [f"{table} of label {label} differ" for label in _sorted(labels)]
    for select, what in ((_WRONGLY_CLOSED, "is closed"), (_WRONG_STREAM, "has another stream")):
        labels = {row[0] for row in db.execute(select)} - set(unknown)
        differences += [f"label {label} {what}" for label in _sorted(labels)]
    if unknown:
        return differences
    if _version(db) not in range(1, SCHEMA_VERSION + 1) or _symmetric_difference(db, _META):
        differences.append("meta differs")
    differences += [
        f"{table} differ"
        for table, select in _WHOLE_TABLES.items()
        if _symmetric_difference(db, select)
    ]
    streams = [row for row in _symmetric_difference(db, _STREAMS) if row[0] not in configured]
    return [*differences, "streams differ"] if streams else differences


def _symmetric_difference(db: sqlite3.Connection, select: str) -> list[tuple[Any, ...]]:
    """Rows that only one of the two databases has."""
    old, new = select.format(db="old"), select.format(db="main")
    return [
        *db.execute(f"SELECT * FROM ({old}) EXCEPT SELECT * FROM ({new})"),  # noqa: S608 - constants
        *db.execute(f"SELECT * FROM ({new}) EXCEPT SELECT * FROM ({old})"),  # noqa: S608 - constants
    ]


def _sorted(labels: set[Any]) -> list[str]:
    """Labels in hex; a damaged index may hold anything in their place."""
    return sorted(label.hex() if isinstance(label, bytes) else repr(label) for label in labels)


class CapabilityUse(NamedTuple):
    """A message under a capability with a rate."""

    auth_ref: bytes
    hub_ts: int
    label_no: int
    seq: int


class LabelStream(NamedTuple):
    """The stream and epoch of a label, and the hub_ts at which the stream was registered."""

    labels: EpochLabels
    epoch: int
    since: int


class Relearner:
    """Fills an empty index label by label, the control label first."""

    def __init__(
        self, index: Index, hub_id: bytes, limits: Limits, streams: Iterable[StreamRecord]
    ) -> None:
        self.index = index
        self.cursors = CommitCursors(index)
        self._logged = Registry(routing_key(hub_id), limits.max_epoch_skew_sec)
        self._known = Registry(routing_key(hub_id), limits.max_epoch_skew_sec)
        self._since: dict[bytes, int] = {}
        self._tokens: dict[bytes, tuple[CapToken, int]] = {}
        # Uses of capabilities span labels and are sorted by hub time on disk, not in memory.
        self._uses = sqlite.connect_temporary()
        self._uses.execute("CREATE TABLE uses (auth_ref, hub_ts, label_no, seq)")
        for stream in streams:
            self._know(stream, 0)

    def begin(self, label: bytes, first_ts: int) -> int:
        """Add a label; its label_no."""
        origin = self.origin(label, first_ts)
        stream_id = origin.labels.stream_id if origin else None
        epoch = origin.epoch if origin else 0
        with self.index.transaction():
            return self.index.add_label(label, stream_id, epoch, first_ts)

    def origin(self, label: bytes, first_ts: int) -> LabelStream | None:
        routed = self._known.route(label, first_ts)
        if routed is None:
            return None
        labels = self._known.labels_of(routed.stream)
        return LabelStream(labels, routed.epoch, self._since[labels.stream_id])

    def grant(self, auth_ref: bytes, hub_ts: int) -> Grant | None:
        """A capability with a full bucket: ``fold_buckets`` checks the rates."""
        if auth_ref not in self._tokens:
            return None
        token, issued_at = self._tokens[auth_ref]
        rate = token.allow.rate
        return Grant(
            token, issued_at, TokenBucket.full(rate, hub_ts) if rate else TokenBucket(0, hub_ts)
        )

    def take(self, label_no: int, chunk_start: int, batch: list[Logged]) -> None:
        """Index the entries of a chunk, in order."""
        if not batch:
            return
        rows, clients, uses = [], {}, []
        for logged in batch:
            client_no = self.cursors.row(label_no, logged.client_id).client_no
            rows.append(
                EntryRow(
                    label_no, logged.seq, chunk_start, logged.at, logged.hub_ts,
                    client_no, logged.client_seq, leaf_key(logged.leaf_hash),
                )
            )  # fmt: skip
            clients[label_no, logged.client_id] = ClientCursor(logged.client_seq, logged.prev_ack)
            if logged.auth_ref in self._tokens and self._tokens[logged.auth_ref][0].allow.rate:
                uses.append(CapabilityUse(logged.auth_ref, logged.hub_ts, label_no, logged.seq))
        with self.index.transaction():
            self.index.add_entries(rows)
            self.cursors.store(clients, {})
            self.index.move_head(label_no, batch[-1].seq, batch[-1].hub_ts)
        self._uses.executemany("INSERT INTO uses VALUES (?, ?, ?, ?)", uses)

    def learn(self, record: ControlRecord, seq: int, hub_ts: int) -> None:
        """Apply a record of the control log."""
        with self.index.transaction():
            learn_control(self.index, self._logged, record, seq, hub_ts)
        token = record.token()
        if token is not None:
            self._tokens.setdefault(token.auth_ref(), (token, hub_ts))
        for stream in record.streams():
            self._know(stream, hub_ts)

    def seal(self, row: ChunkRow) -> None:
        with self.index.transaction():
            self.index.seal(row)

    def add_checkpoints(self, label_no: int, uptos: Iterable[int]) -> None:
        with self.index.transaction():
            for upto in uptos:
                self.index.add_checkpoint(label_no, upto)

    def fold_buckets(self) -> Iterator[CapabilityUse]:
        """Debit every use in the order of hub time; yield those above the rate."""
        buckets: dict[bytes, TokenBucket] = {}
        for row in self._uses.execute("SELECT * FROM uses ORDER BY hub_ts, label_no, seq"):
            use = CapabilityUse(*row)
            token, issued_at = self._tokens[use.auth_ref]
            rate = token.allow.rate
            if rate is None:
                continue
            bucket = buckets.get(use.auth_ref) or TokenBucket.full(rate, issued_at)
            debited = bucket.refilled(rate, use.hub_ts).debited()
            if debited is None:
                yield use
            else:
                buckets[use.auth_ref] = debited
        with self.index.transaction():
            self.index.put_buckets(
                [(auth_ref, bucket.tokens, bucket.at) for auth_ref, bucket in buckets.items()]
            )

    def close(self) -> None:
        self._uses.close()

    def _know(self, stream: StreamRecord, hub_ts: int) -> None:
        if self._known.add(stream):
            self._since.setdefault(stream.stream_id(), hub_ts)
