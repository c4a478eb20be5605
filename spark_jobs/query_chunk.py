"""One chunk read for queries: its leaves, its times, and the events that match.

Every message within the span of time is verified and opened. Outside of it only the leaf counts,
and the time of those messages that show where the span begins and ends.

What a query verifies of the messages of a chunk, by their place in its span of time.

Which events of a query are verified, and how a task shows each of them.
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
    ChunkTask,
    ChunkWitness,
    Found,
    Grouped,
    LogSpan,
    QuestionOrder,
    QuestionTally,
    Refused,
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


class Edges:
    """Verifies all within a span of time, and outside of it the first and the last message: since
    times never go back, that shows where the others are.
    """

    def __init__(self, hub: HubIdentity, piece: ChunkTask) -> None:
        self._hub = hub
        self._piece = piece
        self._zone: int | None = None
        self._last_ts = 0
        self._waiting: PlacedEntry | None = None

    def passes(self, placed: PlacedEntry) -> bool:
        """Whether the message, which is the next, is within the span."""
        hub_ts = placed.framed.receipt.hub_ts
        if hub_ts < self._last_ts:
            raise self._untrusted(placed, "its time is before that of the message before it")
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
        return Untrusted(f"{seq} in {file} at byte {placed.at}: {why}; verify_log tells more")


def _zone(span: LogSpan, hub_ts: int) -> int:
    if hub_ts < span.first:
        return _BEFORE
    return _WITHIN if hub_ts <= span.last else _AFTER


_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTerms:
    """What every task is given. Only the place of the reader's keys travels, and ``reader_scope``,
    by which each host can tell that it has the same ones.
    """

    services: StoreRef
    hub: HubIdentity
    checkpoint: RecorderCheckpoint
    reader: ReaderIdentity
    reader_scope: bytes
    questions: tuple[Descriptor, ...]


class _Read(NamedTuple):
    entry: QueryEntry
    is_within: bool
    framed: FramedEntry
    body_key: bytes | None


def reader_scope(keys: Sequence[bytes]) -> bytes:
    """A name for what these keys open: with others, another number of messages is unread."""
    return FoldReader(keys, DEFAULT_PROFILE, _LIMITS).scope()


def look(terms: QueryTerms, piece: ChunkTask) -> list[Found]:
    """All that a chunk holds for the questions; a refusal travels as it is, for trying again would
    not help.
    """
    try:
        return list(_found(terms, piece))
    except ObjectMissing:
        return [Refused(f"{piece.stream}: the archive lacks {piece.chunk.file}")]
    except (Malformed, Untrusted) as error:
        return [Refused(f"{piece.stream}: {error}")]


def _found(terms: QueryTerms, piece: ChunkTask) -> Iterator[Found]:
    read = list(_reads(terms, piece))
    by_cut = [list(_trees(cut, piece, read)) for cut in piece.cuts]
    grown = [tree for item in by_cut for tree in item]
    times = [item.entry.hub_ts for item in read]
    closed = [item.entry.hub_ts for item in read if item.is_within and item.entry.event is None]
    tallies, groups = {}, 0
    for number in piece.questions:
        question = terms.questions[number]
        taken = [item for item in read if matches(question, item.entry)]
        tallies[number] = _tally(question, times, closed, len(taken))
        if question.aggregate is None or question.evidence.mode != "none":
            yield from (_taken(number, question, item, grown) for item in taken)
        if question.aggregate is not None:
            result = gather_cells(question.aggregate, (item.entry for item in taken))
            groups += len(result)
            yield from (Grouped((number, key), cells) for key, cells in result.items())
    tops = tuple(tuple(tree.top for tree in item) for item in by_cut)
    yield ChunkFacts(piece.number, times[0], times[-1], tops, tallies, groups)


def _trees(cut: Cut, piece: ChunkTask, read: Sequence[_Read]) -> Iterator[Tree]:
    before = piece.chunk.name.start_seq - 1
    some = read[cut.after - before : cut.upto - before]
    return trees(cut.after + 1, [item.entry.leaf_hash for item in some])


def _tally(
    question: Descriptor, times: Sequence[int], closed: Sequence[int], matched: int
) -> QuestionTally:
    first, last = question.filter.first_second, question.filter.last_second

    def places(among: Sequence[int]) -> tuple[int, int]:
        upto = len(among) if last is None else bisect_right(among, last)
        return bisect_left(among, first), upto

    before, upto = places(closed)
    return QuestionTally(*places(times), upto - before, matched)


def _taken(number: int, question: Descriptor, value: _Read, grown: Sequence[Tree]) -> TakenRows:
    at = value.entry.order_key
    # No import stream is searched here, so the rest of the key is empty.
    key = QuestionOrder(number, at.hub_ts, at.stream, at.seq)
    detail = (
        canonical_json.encode(row(question, value.entry)) if question.aggregate is None else None
    )
    if question.evidence.mode == "none":
        return TakenRows(key, detail, None)
    own = next(tree for tree in grown if value.entry.seq in tree.seqs)
    path = own.path(value.entry.seq)
    msg, receipt = value.framed.msg.encode(), value.framed.receipt.encode()
    return TakenRows(
        key, detail, ChunkWitness(value.entry, msg, receipt, value.body_key or b"", path)
    )


def _reads(terms: QueryTerms, piece: ChunkTask) -> Iterator[_Read]:
    keys = terms.reader.keys()
    if reader_scope(keys) != terms.reader_scope:
        raise Untrusted(f"{terms.reader.client} has other keys on this host than on the driver's")
    reader, edges = EntryReader(keys, _LIMITS), Edges(terms.hub, piece)
    for placed in _placed(terms, piece):
        is_within = edges.passes(placed)
        msg, receipt = placed.framed.msg, placed.framed.receipt
        result = reader.read(msg.encode()) if is_within else None
        entry = QueryEntry(
            piece.stream, receipt.stream_seq, receipt.hub_ts, msg.leaf_hash(), _event(result)
        )
        yield _Read(entry, is_within, placed.framed, result.body_key if result else None)
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


class Proven(NamedTuple):
    question: int
    witness: bytes
    line: EvidenceSummary


class Numbered(NamedTuple):
    """An event that matches, and its number among those of its question, from 0 on."""

    taken: TakenRows
    number: int


@dataclass(frozen=True, slots=True)
class ProofTerms:
    """What the proofs of a stream have in common, and where each question's events begin."""

    uppers: Mapping[str, Mapping[Place, bytes]]
    sizes: Mapping[str, int]
    offsets: Sequence[int]

    def numbered(self, taken: TakenRows, place: int) -> Numbered:
        """``place`` counts the events of all questions, one question after another."""
        return Numbered(taken, place - self.offsets[taken.key.question])


def is_drawn(terms: QueryTerms, numbered: Numbered) -> bool:
    question = terms.questions[numbered.taken.key.question]
    root = terms.checkpoint.log_root
    return is_sampled(question.evidence, question.query_id, root, numbered.number)


def prove(terms: QueryTerms, proofs: ProofTerms, numbered: Numbered) -> Proven | Refused:
    """The witness of an event, verified as whoever gets it would; or why it does not hold."""
    shown = numbered.taken.shown
    if shown is None:
        return Refused(f"event {numbered.number} was drawn and nothing shows it")
    entry = shown.entry
    path = proof(entry.seq, proofs.sizes[entry.stream], shown.path, proofs.uppers[entry.stream])
    try:
        witness = Witness(
            msg=shown.msg, receipt=shown.receipt, body_key=shown.body_key, inclusion=path
        )
        WitnessCheck(terms.hub, terms.checkpoint).event(witness, entry)
    except (Malformed, Untrusted) as error:
        return Refused(str(error))
    return Proven(numbered.taken.key.question, witness.encode(), verified(entry, terms.checkpoint))
