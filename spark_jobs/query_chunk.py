"""The task of a query over one chunk: its leaves, its times, and the events that match.

Every message within the query's span of time is verified and decrypted. Outside of the span only
the leaf counts, and the times of the messages that delimit the span. Matching events that need
evidence are returned with their witness.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from recorder.folds.source import FoldReader
from recorder.index.writer import EntryReader, EventReading
from recorder.query.descriptor import Descriptor
from recorder.query.evidence import EvidenceSummary, Witness, WitnessCheck, is_sampled, verified
from recorder.query.select import QueryEntry, gather_cells, matches, row
from spark_jobs.chunk_window import PlacedEntry, windows
from spark_jobs.event_files import ReaderIdentity
from spark_jobs.query_nodes import Cut, Place, Tree, proof, trees
from spark_jobs.query_plan import (
    ChunkFacts,
    ChunkResult,
    ChunkTask,
    ChunkWitness,
    Grouped,
    LogSpan,
    QueryRefused,
    QuestionOrder,
    QuestionTally,
    TakenRows,
)
from veen.errors import Malformed, Untrusted
from veen.events import RecordEvent
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE
from veen.limits import Limits
from veen.log.entry import FramedEntry
from veen.objects.port import ObjectMissing
from veen.objects.store import StoreRef
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire import canonical_json
from veen.wire.body import AnyItem

_BEFORE: Final = 0
_WITHIN: Final = 1
_AFTER: Final = 2
_LIMITS: Final = Limits()


class Edges:
    """Verifies all messages within a span of time, and outside of it the first and the last: since
    times never go back, that shows where the others are."""

    def __init__(self, hub: HubIdentity, piece: ChunkTask) -> None:
        self._hub = hub
        self._piece = piece
        self._zone: int | None = None
        self._last_ts = 0
        self._waiting: PlacedEntry | None = None

    def passes(self, placed: PlacedEntry) -> bool:
        """Whether the next message is within the span."""
        hub_ts = placed.framed.receipt.hub_ts
        if hub_ts < self._last_ts:
            raise self._untrusted(placed, f"expected hub_ts {self._last_ts} or later, got {hub_ts}")
        zone = _zone(self._piece.span, hub_ts)
        if zone != self._zone:
            self.finish()
        if zone == _WITHIN or zone != self._zone:
            self._verify(placed)
        else:
            self._waiting = placed
        self._zone, self._last_ts = zone, hub_ts
        return zone == _WITHIN

    def finish(self) -> None:
        if self._waiting is not None:
            self._verify(self._waiting)
        self._waiting = None

    def _verify(self, placed: PlacedEntry) -> None:
        msg, receipt = placed.framed.msg, placed.framed.receipt
        try:
            self._hub.verify_receipt(receipt)
        except Untrusted as error:
            raise self._untrusted(placed, str(error)) from error
        if msg.leaf_hash() != receipt.leaf_hash:
            raise self._untrusted(placed, "the receipt is of another message")
        if not msg.ct_hash_matches():
            raise self._untrusted(placed, "ct_hash is not the hash of the ciphertext")
        if not msg.signature_is_valid():
            raise self._untrusted(placed, "the message is not signed by its client")

    def _untrusted(self, placed: PlacedEntry, why: str) -> Untrusted:
        seq, file = placed.framed.header.stream_seq, self._piece.chunk.file
        return Untrusted(f"{seq} in {file} at byte {placed.at}: {why}; run verify_log")


def _zone(span: LogSpan, hub_ts: int) -> int:
    if hub_ts < span.first:
        return _BEFORE
    return _WITHIN if hub_ts <= span.last else _AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTerms:
    """The parameters of every task.

    Only the location of the reader's keys is sent, and ``reader_scope``, by which each host
    verifies that it has the same keys.
    """

    services: StoreRef
    hub: HubIdentity
    checkpoint: RecorderCheckpoint
    reader: ReaderIdentity
    reader_scope: bytes
    questions: tuple[Descriptor, ...]


class _ReadEntry(NamedTuple):
    """A message of the chunk, with its event if it is within the span."""

    entry: QueryEntry
    is_within: bool
    framed: FramedEntry
    body_key: bytes | None


def reader_scope(keys: Sequence[bytes]) -> bytes:
    """A hash that identifies the keys; with other keys, other messages would be unread."""
    return FoldReader(keys, DEFAULT_PROFILE, _LIMITS).scope()


def look(terms: QueryTerms, piece: ChunkTask) -> list[ChunkResult]:
    """Return all that a chunk holds for the questions.

    A refusal is returned too, since a retry would not help.
    """
    try:
        return list(_results(terms, piece))
    except ObjectMissing:
        return [QueryRefused(f"{piece.stream}: the archive lacks {piece.chunk.file}")]
    except (Malformed, Untrusted) as error:
        return [QueryRefused(f"{piece.stream}: {error}")]


def _results(terms: QueryTerms, piece: ChunkTask) -> Iterator[ChunkResult]:
    read = list(_reads(terms, piece))
    by_cut = [list(_trees(cut, piece, read)) for cut in piece.cuts]
    all_trees = [tree for cut_trees in by_cut for tree in cut_trees]
    times = [message.entry.hub_ts for message in read]
    closed = [
        message.entry.hub_ts
        for message in read
        if message.is_within and message.entry.event is None
    ]
    tallies, groups = {}, 0
    for number in piece.questions:
        question = terms.questions[number]
        matching = [message for message in read if matches(question, message.entry)]
        tallies[number] = _tally(question, times, closed, len(matching))
        if question.aggregate is None or question.evidence.mode != "none":
            yield from (_taken(number, question, message, all_trees) for message in matching)
        if question.aggregate is not None:
            by_key = gather_cells(question.aggregate, (message.entry for message in matching))
            groups += len(by_key)
            yield from (Grouped((number, key), cells) for key, cells in by_key.items())
    tops = tuple(tuple(tree.top for tree in cut_trees) for cut_trees in by_cut)
    yield ChunkFacts(piece.number, times[0], times[-1], tops, tallies, groups)


def _trees(cut: Cut, piece: ChunkTask, read: Sequence[_ReadEntry]) -> Iterator[Tree]:
    before = piece.chunk.name.start_seq - 1
    within = read[cut.after - before : cut.upto - before]
    return trees(cut.after + 1, [message.entry.leaf_hash for message in within])


def _tally(
    question: Descriptor, times: Sequence[int], closed: Sequence[int], matched: int
) -> QuestionTally:
    first, last = question.filter.first_second, question.filter.last_second

    def places(times_: Sequence[int]) -> tuple[int, int]:
        upto = len(times_) if last is None else bisect_right(times_, last)
        return bisect_left(times_, first), upto

    before, upto = places(closed)
    return QuestionTally(*places(times), upto - before, matched)


def _taken(
    number: int, question: Descriptor, message: _ReadEntry, all_trees: Sequence[Tree]
) -> TakenRows:
    order = message.entry.order_key
    # Import streams are not searched here, so the rest of the key is empty.
    key = QuestionOrder(number, order.hub_ts, order.stream, order.seq)
    encoded_row = (
        canonical_json.encode(row(question, message.entry)) if question.aggregate is None else None
    )
    if question.evidence.mode == "none":
        return TakenRows(key, encoded_row, None)
    tree_ = next(tree for tree in all_trees if message.entry.seq in tree.seqs)
    path = tree_.path(message.entry.seq)
    msg, receipt = message.framed.msg.encode(), message.framed.receipt.encode()
    return TakenRows(
        key, encoded_row, ChunkWitness(message.entry, msg, receipt, message.body_key or b"", path)
    )


def _reads(terms: QueryTerms, piece: ChunkTask) -> Iterator[_ReadEntry]:
    keys = terms.reader.keys()
    if reader_scope(keys) != terms.reader_scope:
        raise Untrusted(
            f"{terms.reader.client}: the keys on this host differ from those on the driver's"
        )
    reader, edges = EntryReader(keys, _LIMITS), Edges(terms.hub, piece)
    for placed in _placed(terms, piece):
        is_within = edges.passes(placed)
        msg, receipt = placed.framed.msg, placed.framed.receipt
        reading = reader.read(msg.encode()) if is_within else None
        entry = QueryEntry(
            piece.stream, receipt.stream_seq, receipt.hub_ts, msg.leaf_hash(), _event(reading)
        )
        yield _ReadEntry(entry, is_within, placed.framed, reading.body_key if reading else None)
    edges.finish()


def _placed(terms: QueryTerms, piece: ChunkTask) -> Iterator[PlacedEntry]:
    for window in windows(terms.services.to_read().objects, piece.chunk, _LIMITS):
        for placed in window:
            if placed.framed.header.stream_seq > piece.last_seq:
                return
            yield placed


def _event(reading: EventReading | None) -> RecordEvent | None:
    if reading is None or reading.fault is not None:
        return None
    return RecordEvent(
        subject_id=reading.subject_id or "",
        principal_id=reading.principal_id or b"",
        event_type=reading.event_type or "",
        event_time=reading.event_time or 0,
        origin=reading.origin or "",
        payload=AnyItem(reading.payload or b""),
    )


class ProvenEvent(NamedTuple):
    """A verified witness and its line of the evidence summary."""

    question: int
    witness: bytes
    line: EvidenceSummary


class Numbered(NamedTuple):
    """A matching event, and its number among those of its question, from 0."""

    taken: TakenRows
    number: int


@dataclass(frozen=True, slots=True)
class ProofTerms:
    """What the proofs of a stream share, and where the events of each question begin."""

    uppers: Mapping[str, Mapping[Place, bytes]]
    sizes: Mapping[str, int]
    offsets: Sequence[int]

    def numbered(self, taken: TakenRows, place: int) -> Numbered:
        """``place`` counts the events of all questions, in the order of the questions."""
        return Numbered(taken, place - self.offsets[taken.key.question])


def is_drawn(terms: QueryTerms, numbered: Numbered) -> bool:
    question = terms.questions[numbered.taken.key.question]
    root = terms.checkpoint.log_root
    return is_sampled(question.evidence, question.query_id, root, numbered.number)


def prove(terms: QueryTerms, proofs: ProofTerms, numbered: Numbered) -> ProvenEvent | QueryRefused:
    """Build the witness of an event and verify it as its recipient would.

    Returns ``Refused`` if that fails.
    """
    shown = numbered.taken.shown
    if shown is None:
        return QueryRefused(f"event {numbered.number} was sampled, and has no evidence")
    entry = shown.entry
    path = proof(entry.seq, proofs.sizes[entry.stream], shown.path, proofs.uppers[entry.stream])
    try:
        witness = Witness(
            msg=shown.msg, receipt=shown.receipt, body_key=shown.body_key, inclusion=path
        )
        WitnessCheck(terms.hub, terms.checkpoint).event(witness, entry)
    except (Malformed, Untrusted) as error:
        return QueryRefused(str(error))
    return ProvenEvent(
        numbered.taken.key.question, witness.encode(), verified(entry, terms.checkpoint)
    )
