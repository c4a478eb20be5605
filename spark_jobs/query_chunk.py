"""One chunk read for queries: its leaves, its times, and the events that match.

Every message within the span of time is verified and opened. Outside of it only the leaf counts,
and the time of those messages that show where the span begins and ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from recorder.folds.reader import FoldReader
from recorder.index.reading import Reader, Reading
from recorder.query import aggregate as aggregates
from recorder.query.descriptor import Descriptor
from recorder.query.entry import Entry
from recorder.query.select import matches, row
from spark_jobs import event_work
from spark_jobs.chunk_window import Placed, windows
from spark_jobs.query_bridge import Cut
from spark_jobs.query_edges import Edges
from spark_jobs.query_found import Facts, Found, Grouped, OrderKey, Refused, Shown, Taken, Tally
from spark_jobs.query_nodes import Tree, trees
from spark_jobs.query_plan import Piece
from spark_jobs.store_door import StoreDoor
from veen import canonical_json
from veen.entry import FramedEntry
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.limits import Limits
from veen.objects.port import ObjectMissing
from veen.overlay.body import AnyItem
from veen.profile import DEFAULT_PROFILE
from veen.record_event import RecordEvent
from veen.recorder_checkpoint import RecorderCheckpoint

_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What every task is given. Only the place of the reader's keys travels, and ``reader_scope``,
    by which each host can tell that it has the same ones.
    """

    door: StoreDoor
    hub: HubIdentity
    checkpoint: RecorderCheckpoint
    reader: event_work.Reader
    reader_scope: bytes
    questions: tuple[Descriptor, ...]


class _Read(NamedTuple):
    entry: Entry
    is_within: bool
    framed: FramedEntry
    body_key: bytes | None


def reader_scope(keys: Sequence[bytes]) -> bytes:
    """A name for what these keys open: with others, another number of messages is unread."""
    return FoldReader(keys, DEFAULT_PROFILE, _LIMITS).scope()


def look(terms: Terms, piece: Piece) -> list[Found]:
    """All that a chunk holds for the questions; a refusal travels as it is, for trying again would
    not help.
    """
    try:
        return list(_found(terms, piece))
    except ObjectMissing:
        return [Refused(f"{piece.stream}: the archive lacks {piece.chunk.file}")]
    except (Malformed, Untrusted) as error:
        return [Refused(f"{piece.stream}: {error}")]


def _found(terms: Terms, piece: Piece) -> Iterator[Found]:
    read = list(_reads(terms, piece))
    by_cut = [list(_trees(one, piece, read)) for one in piece.cuts]
    grown = [tree for one in by_cut for tree in one]
    times = [one.entry.hub_ts for one in read]
    closed = [one.entry.hub_ts for one in read if one.is_within and one.entry.event is None]
    tallies, groups = {}, 0
    for number in piece.questions:
        question = terms.questions[number]
        taken = [one for one in read if matches(question, one.entry)]
        tallies[number] = _tally(question, times, closed, len(taken))
        if question.aggregate is None or question.evidence.mode != "none":
            yield from (_taken(number, question, one, grown) for one in taken)
        if question.aggregate is not None:
            found = aggregates.gather(question.aggregate, (one.entry for one in taken))
            groups += len(found)
            yield from (Grouped((number, key), cells) for key, cells in found.items())
    tops = tuple(tuple(tree.top for tree in one) for one in by_cut)
    yield Facts(piece.number, times[0], times[-1], tops, tallies, groups)


def _trees(cut: Cut, piece: Piece, read: Sequence[_Read]) -> Iterator[Tree]:
    before = piece.chunk.name.start_seq - 1
    some = read[cut.after - before : cut.upto - before]
    return trees(cut.after + 1, [one.entry.leaf_hash for one in some])


def _tally(
    question: Descriptor, times: Sequence[int], closed: Sequence[int], matched: int
) -> Tally:
    first, last = question.filter.first_second, question.filter.last_second

    def places(among: Sequence[int]) -> tuple[int, int]:
        upto = len(among) if last is None else bisect_right(among, last)
        return bisect_left(among, first), upto

    before, upto = places(closed)
    return Tally(*places(times), upto - before, matched)


def _taken(number: int, question: Descriptor, one: _Read, grown: Sequence[Tree]) -> Taken:
    at = one.entry.order_key
    # No import stream is searched here, so the rest of the key is empty.
    key = OrderKey(number, at.hub_ts, at.stream, at.seq)
    told = canonical_json.encode(row(question, one.entry)) if question.aggregate is None else None
    if question.evidence.mode == "none":
        return Taken(key, told, None)
    own = next(tree for tree in grown if one.entry.seq in tree.seqs)
    path = own.path(one.entry.seq)
    msg, receipt = one.framed.msg.encode(), one.framed.receipt.encode()
    return Taken(key, told, Shown(one.entry, msg, receipt, one.body_key or b"", path))


def _reads(terms: Terms, piece: Piece) -> Iterator[_Read]:
    keys = terms.reader.keys()
    if reader_scope(keys) != terms.reader_scope:
        raise Untrusted(f"{terms.reader.client} has other keys on this host than on the driver's")
    reader, edges = Reader(keys, _LIMITS), Edges(terms.hub, piece)
    for placed in _placed(terms, piece):
        is_within = edges.passes(placed)
        msg, receipt = placed.framed.msg, placed.framed.receipt
        found = reader.read(msg.encode()) if is_within else None
        entry = Entry(
            piece.stream, receipt.stream_seq, receipt.hub_ts, msg.leaf_hash(), _event(found)
        )
        yield _Read(entry, is_within, placed.framed, found.body_key if found else None)
    edges.finish()


def _placed(terms: Terms, piece: Piece) -> Iterator[Placed]:
    for window in windows(terms.door.to_read().objects, piece.chunk, _LIMITS):
        for placed in window:
            if placed.framed.header.stream_seq > piece.last_seq:
                return
            yield placed


def _event(found: Reading | None) -> RecordEvent | None:
    if found is None or found.fault is not None:
        return None
    return RecordEvent(
        subject_id=found.subject_id or "",
        principal_id=found.principal_id or b"",
        event_type=found.event_type or "",
        event_time=found.event_time or 0,
        origin=found.origin or "",
        payload=AnyItem(found.payload or b""),
    )
