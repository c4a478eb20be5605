"""Recorder checkpoints known to an index, and inclusion proofs of its events (SDR0 3.2.4).

Each checkpoint is compared with the index's own roots. Proofs of many leaves at one tree size share
their lookups. Witnesses of sampled events are verified before they are returned.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from recorder.index import tables
from recorder.index.reader import Snapshot
from recorder.index.tables import BadIndex, IndexedStream, transaction
from recorder.index.writer import IndexWriter
from recorder.query.evidence import Witness, WitnessCheck
from recorder.query.execute import Sampled
from recorder.query.select import QueryEntry
from veen import mmr
from veen.client.session import Session
from veen.client.transport import HubRefused
from veen.errors import Code, Untrusted
from veen.hub_identity import HubIdentity, followed_identity
from veen.mmr import Nodes
from veen.proofs import InclusionProof
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd
from veen.system.process_pool import WorkerPool

_PAGE: Final = 100
_BATCH: Final = 256
_log = logging.getLogger(__name__)


class Disagreement(Untrusted):
    """A checkpoint whose root differs from that of the log; the hub has signed both."""


def learn_checkpoint(writer: IndexWriter, session: Session) -> int:
    """Store new recorder checkpoints of the hub; return how many."""
    last, count = _latest(writer), 0
    for checkpoint in _offered(session, last.created_at if last else 0):
        if _knows(writer, checkpoint):
            continue
        _verify_document(session, checkpoint, last)
        with transaction(writer.db):
            writer.db.execute(
                "INSERT INTO checkpoints (checkpoint_id, created_at, document) VALUES (?, ?, ?)",
                (checkpoint.checkpoint_id, checkpoint.created_at, checkpoint.encode()),
            )
        last, count = checkpoint, count + 1
    return count


def check_checkpoint(writer: IndexWriter) -> None:
    """Compare every stream with the checkpoints it has reached; a difference stops all queries.

    Each document is decoded once, for all streams that have to be compared with it next.
    """
    (last,) = writer.db.execute("SELECT coalesce(max(number), 0) FROM checkpoints").fetchone()
    behind = [row for row in writer.streams() if row.checked < last and writer.may_reach(row)]
    while behind:
        number = _next_number(writer, behind, last)
        document = _numbered(writer, number)
        ends = {end.stream_id: end for end in document.ends}
        later = [row for row in behind if row.checked >= number]
        compared = [
            row._replace(checked=_agreed(writer, row, document, ends.get(row.stream_id), number))
            for row in behind
            if row.checked < number
        ]
        with transaction(writer.db):
            for row in compared:
                writer.update(row)
        reached = [row for row in compared if row.checked == number]
        behind = [row for row in (*reached, *later) if row.checked < last]


def _next_number(writer: IndexWriter, behind: Sequence[IndexedStream], last: int) -> int:
    """The next document to compare; those before it cover none of the streams furthest behind."""
    checked = min(row.checked for row in behind)
    next_checked = min((row.checked for row in behind if row.checked > checked), default=last)
    rows = [row for row in behind if row.checked == checked]
    return _first_covering(writer, rows, checked + 1, min(next_checked + 1, last))


def _agreed(
    writer: IndexWriter,
    row: IndexedStream,
    document: RecorderCheckpoint,
    end: StreamEnd | None,
    number: int,
) -> int:
    """The last document that a stream agrees with: this one, or the one before if it has not
    reached it; an alarm if it contradicts.

    A stream that the document does not cover agrees, as does one of another hub.
    """
    if end is None or document.hub_id != row.hub_id:
        return number
    if end.last_seq > row.position:
        writer.await_position(row, end.last_seq)
        return number - 1
    if end.last_seq and writer.root_at(row, end.last_seq) != end.mmr_root:
        raise _alarm(writer, row, document, end.last_seq)
    return number


def _first_covering(writer: IndexWriter, rows: Sequence[IndexedStream], low: int, high: int) -> int:
    """The first document from ``low`` that covers any of these streams, else ``high``.

    A document covers all streams of earlier ones, so that a new stream costs a search in history
    by growing steps, and no walk through it.
    """
    step = 1
    while low < high and not _covers(_numbered(writer, min(low + step - 1, high)), rows):
        low, step = min(low + step, high), 2 * step
    high = min(low + step - 1, high)
    while low < high:
        middle = (low + high) // 2
        if _covers(_numbered(writer, middle), rows):
            high = middle
        else:
            low = middle + 1
    return low


def _covers(document: RecorderCheckpoint, rows: Sequence[IndexedStream]) -> bool:
    ids = {end.stream_id for end in document.ends}
    return any(row.stream_id in ids and row.hub_id == document.hub_id for row in rows)


def _numbered(writer: IndexWriter, number: int) -> RecorderCheckpoint:
    row = writer.db.execute(
        "SELECT document FROM checkpoints WHERE number = ?", (number,)
    ).fetchone()
    if row is None:
        raise BadIndex(f"the index lacks recorder checkpoint number {number}; {tables.REMEDY}")
    return RecorderCheckpoint.decode(row[0])


def _alarm(
    writer: IndexWriter, row: IndexedStream, document: RecorderCheckpoint, seq: int
) -> Disagreement:
    """Store the two contradicting signed statements, and return the error."""
    detail = (
        f"{row.name}: recorder checkpoint {document.checkpoint_id.hex()} has another root at "
        f"stream_seq {seq} than the log that was read"
    )
    (receipt,) = writer.db.execute(
        "SELECT receipt FROM pairs WHERE place = ?", (row.place(seq),)
    ).fetchone() or (None,)
    with transaction(writer.db):
        writer.db.execute(
            "INSERT INTO alarms (stream, detail, document, receipt) SELECT ?, ?, ?, ? "
            "WHERE NOT EXISTS (SELECT 1 FROM alarms WHERE detail = ?)",
            (row.name, detail, document.encode(), receipt, detail),
        )
    _log.critical("%s; queries are stopped", detail)
    return Disagreement(f"{detail}; queries are stopped, the evidence is stored in the index")


def _offered(session: Session, since: int) -> Iterator[RecorderCheckpoint]:
    """Yield checkpoints from the second of the last known one, since two may share a second."""
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
            raise Untrusted(
                f"recorder checkpoints: expected a page after {after}, got next_after "
                f"{page.next_after}"
            )
        after = page.next_after


def _verify_document(
    session: Session, checkpoint: RecorderCheckpoint, last: RecorderCheckpoint | None
) -> None:
    try:
        checkpoint.verify(session.hub)
    except Untrusted:
        checkpoint.verify(followed_identity(session.hub, session.api.status().identity()))
    if last is not None:
        checkpoint.verify_follows(last)


def _latest(writer: IndexWriter) -> RecorderCheckpoint | None:
    row = writer.db.execute(
        "SELECT document FROM checkpoints ORDER BY number DESC LIMIT 1"
    ).fetchone()
    return RecorderCheckpoint.decode(row[0]) if row else None


def _knows(writer: IndexWriter, checkpoint: RecorderCheckpoint) -> bool:
    rows = writer.db.execute(
        "SELECT 1 FROM checkpoints WHERE checkpoint_id = ?", (checkpoint.checkpoint_id,)
    )
    return rows.fetchone() is not None


class Prover:
    """Builds the same proofs as ``InclusionProof.build``, with shared lookups."""

    def __init__(self, nodes: Nodes, size: int) -> None:
        self._nodes = nodes
        self._size = size
        self._places = tuple(mmr.peak_nodes(size))
        self._hashes = mmr.peaks_at(nodes, size).hashes

    def prove(self, seq: int) -> InclusionProof:
        leaf = seq - 1
        peak = next(
            number
            for number, (height, index) in enumerate(self._places)
            if leaf >> height == index
        )  # fmt: skip
        node = self._nodes.node
        return InclusionProof(
            stream_seq=seq,
            size=self._size,
            path=tuple(
                [node(height, (leaf >> height) ^ 1) for height in range(self._places[peak][0])]
            ),
            peaks=self._hashes[:peak] + self._hashes[peak + 1 :],
        )


WitnessedEntry = tuple[Witness, QueryEntry]


class WitnessTerms(NamedTuple):
    """The hub and checkpoint that witnesses are verified against; both are verified already."""

    hub: HubIdentity
    checkpoint: RecorderCheckpoint


def verified_witnesses(
    held: Snapshot,
    rows: Mapping[str, IndexedStream],
    sampled: Sequence[Sampled],
    terms: WitnessTerms,
    beside: WorkerPool,
) -> tuple[Witness, ...]:
    """Return a verified witness for each sampled event, in order; raises the first error."""
    provers = {name: _prover(held, row, terms.checkpoint) for name, row in rows.items()}
    witnesses: list[Witness] = []

    def parts() -> Iterator[list[WitnessedEntry]]:
        for start in range(0, len(sampled), _BATCH):
            entries = [sample.entry for sample in sampled[start : start + _BATCH]]
            batch = list(_witnesses(held, rows, entries, provers))
            witnesses.extend(batch)
            yield list(zip(batch, entries, strict=True))

    deque(beside.run(partial(_verify_witnesses, terms), parts()), maxlen=0)
    return tuple(witnesses)


def _witnesses(
    held: Snapshot,
    rows: Mapping[str, IndexedStream],
    entries: Sequence[QueryEntry],
    provers: Mapping[str, Prover],
) -> Iterator[Witness]:
    places = [rows[entry.stream].place(entry.seq) for entry in entries]
    for entry, pair in zip(entries, held.pairs(places), strict=True):
        if pair.body_key is None:
            raise BadIndex(
                f"{entry.stream} {entry.seq}: the index lacks the key of its body; {tables.REMEDY}"
            )
        try:
            proof = provers[entry.stream].prove(entry.seq)
        except LookupError as error:
            raise BadIndex(f"{entry.stream} {entry.seq}: {error}; {tables.REMEDY}") from error
        yield Witness(msg=pair.msg, receipt=pair.receipt, body_key=pair.body_key, inclusion=proof)


def _prover(held: Snapshot, row: IndexedStream, checkpoint: RecorderCheckpoint) -> Prover:
    end = checkpoint.end(row.name)
    return Prover(held.nodes(row), end.last_seq if end else 0)


def _verify_witnesses(terms: WitnessTerms, witnessed: Sequence[WitnessedEntry]) -> None:
    check = WitnessCheck(terms.hub, terms.checkpoint)
    for witness, entry in witnessed:
        try:
            check.event(witness, entry)
        except Untrusted as error:
            raise Untrusted(f"{error}; run veen recorder index verify") from error
