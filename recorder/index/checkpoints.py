"""The recorder checkpoints an index knows, each compared with its own roots (SDR0 3.2.4)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from recorder.index.tables import StreamRow, transaction
from recorder.index.writer import IndexWriter
from veen.client.errors import HubRefused
from veen.client.session import Session
from veen.client.trust import followed
from veen.errors import Code, Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint

_PAGE: Final = 100
_log = logging.getLogger(__name__)


class Disagreement(Untrusted):
    """A checkpoint whose root is not that of the log as it was read: the hub signed both."""


def learn(writer: IndexWriter, session: Session) -> int:
    """Take in the documents the hub has made since; how many there were."""
    last, count = _latest(writer), 0
    for one in _offered(session, last.created_at if last else 0):
        if _knows(writer, one):
            continue
        _verify(session, one, last)
        with transaction(writer.db):
            writer.db.execute(
                "INSERT INTO checkpoints (checkpoint_id, created_at, document) VALUES (?, ?, ?)",
                (one.checkpoint_id, one.created_at, one.encode()),
            )
        last, count = one, count + 1
    return count


def check(writer: IndexWriter) -> None:
    """Compare every stream with the checkpoints it has reached; a difference stops all queries."""
    for row in writer.streams():
        checked = _checked(writer, row)
        if checked != row.checked:
            with transaction(writer.db):
                writer.update(row._replace(checked=checked))


def _checked(writer: IndexWriter, row: StreamRow) -> int:
    """The number of the last checkpoint that the stream agrees with."""
    found = row.checked
    for number, raw in writer.db.execute(
        "SELECT number, document FROM checkpoints WHERE number > ? ORDER BY number", (found,)
    ):
        document = RecorderCheckpoint.decode(raw)
        # One of another hub says nothing of this stream.
        end = document.end(row.name) if document.hub_id == row.hub_id else None
        if end is not None and end.last_seq > row.position:
            break
        if end is not None and end.last_seq:
            ours = writer.root_at(row, end.last_seq)
            if ours != end.mmr_root:
                raise _alarm(writer, row, document, end.last_seq)
        found = int(number)
    return found


def _alarm(
    writer: IndexWriter, row: StreamRow, document: RecorderCheckpoint, seq: int
) -> Disagreement:
    """Keep the two signed words that contradict each other, and say where."""
    told = (
        f"{row.name}: recorder checkpoint {document.checkpoint_id.hex()} has another root at "
        f"stream_seq {seq} than the log that was read"
    )
    (receipt,) = writer.db.execute(
        "SELECT receipt FROM pairs WHERE place = ?", (row.place(seq),)
    ).fetchone() or (None,)
    with transaction(writer.db):
        writer.db.execute(
            "INSERT INTO alarms (stream, told, document, receipt) SELECT ?, ?, ?, ? "
            "WHERE NOT EXISTS (SELECT 1 FROM alarms WHERE told = ?)",
            (row.name, told, document.encode(), receipt, told),
        )
    _log.critical("%s; queries are stopped", told)
    return Disagreement(f"{told}; queries are stopped, the evidence is kept in the index")


def _offered(session: Session, since: int) -> Iterator[RecorderCheckpoint]:
    """From the second of the last one we know, for two may fall into one second."""
    after: int | None = max(since - 1, 0)
    while after is not None:
        try:
            page = session.api.recorder_checkpoints(after, _PAGE)
        except HubRefused as error:
            if error.code != Code.NOT_FOUND.value:
                raise
            return
        yield from page.checkpoints
        if page.next_after is not None and page.next_after <= after:
            raise Untrusted(f"recorder checkpoints after {after} go on after {page.next_after}")
        after = page.next_after


def _verify(session: Session, one: RecorderCheckpoint, last: RecorderCheckpoint | None) -> None:
    try:
        one.verify(session.hub)
    except Untrusted:
        one.verify(followed(session.hub, session.api.status().identity()))
    if last is not None:
        one.verify_follows(last)


def _latest(writer: IndexWriter) -> RecorderCheckpoint | None:
    found = writer.db.execute(
        "SELECT document FROM checkpoints ORDER BY number DESC LIMIT 1"
    ).fetchone()
    return RecorderCheckpoint.decode(found[0]) if found else None


def _knows(writer: IndexWriter, one: RecorderCheckpoint) -> bool:
    found = writer.db.execute(
        "SELECT 1 FROM checkpoints WHERE checkpoint_id = ?", (one.checkpoint_id,)
    )
    return found.fetchone() is not None
