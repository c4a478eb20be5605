"""What the chunks of a query come to together: roots that must be the checkpoint's, and spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recorder.query.span import Span
from spark_jobs.query_found import Facts, Tally
from spark_jobs.query_nodes import Place, Upper
from spark_jobs.query_plan import Piece, StreamPlan
from veen.errors import Untrusted


class StreamFindings(NamedTuple):
    """One stream whose root was reached: its nodes for proofs, and what each question found."""

    stream: str
    size: int
    upper: Mapping[Place, bytes]
    spans: Mapping[int, Span]
    unread: Mapping[int, int]
    matched: Mapping[int, int]


def findings(plan: StreamPlan, facts: Mapping[int, Facts]) -> StreamFindings:
    """Refuse unless the chunks follow each other and lead to the root of the checkpoint."""
    found = [facts[piece.number] for piece in plan.pieces]
    upper = _reached(plan, facts)
    spans, unread, matched = {}, {}, {}
    start = plan.peaks.size + 1
    for question in plan.questions:
        tally = _total([one.tallies[question] for one in found])
        spans[question] = Span(start + tally.before, start + tally.upto - 1)
        unread[question], matched[question] = tally.unread, tally.matched
    return StreamFindings(plan.stream, plan.end.last_seq, upper.nodes, spans, unread, matched)


def _reached(plan: StreamPlan, facts: Mapping[int, Facts]) -> Upper:
    _verify_times(plan, facts)
    upper = Upper(plan.peaks)
    for piece in plan.pieces:
        _append(upper, plan, piece, facts)
    for one in plan.bridges:
        upper.graft(one.top(facts[one.piece.number].tops))
    for piece in plan.last:
        _append(upper, plan, piece, facts)
    if upper.peaks.size != plan.end.last_seq:
        raise _untrusted(plan, f"its chunks end at {upper.peaks.size}")
    if upper.peaks.size and upper.peaks.root() != plan.end.mmr_root:
        raise _untrusted(plan, "its chunks do not lead to the root of the checkpoint")
    return upper


def _verify_times(plan: StreamPlan, facts: Mapping[int, Facts]) -> None:
    """What was read shows by itself that the span is within it: nobody signs a manifest."""
    last_ts = 0
    for piece in plan.to_read:
        one = facts[piece.number]
        if one.first_ts < last_ts:
            raise _untrusted(plan, f"times go back at the start of {piece.chunk.file}")
        last_ts = one.last_ts
    begins = plan.peaks.size and facts[plan.pieces[0].number].first_ts >= plan.span.first
    ends = plan.bridges and facts[plan.pieces[-1].number].last_ts <= plan.span.last
    if begins or ends:
        raise _untrusted(plan, "the times of its manifest are not those of its chunks")


def _append(upper: Upper, plan: StreamPlan, piece: Piece, facts: Mapping[int, Facts]) -> None:
    if piece.chunk.name.start_seq != upper.peaks.size + 1:
        raise _untrusted(plan, f"{piece.chunk.file} is not the next chunk after {upper.peaks.size}")
    for top in facts[piece.number].tops[0]:
        upper.graft(top)


def _total(tallies: Sequence[Tally]) -> Tally:
    return Tally(*(sum(column) for column in zip(Tally(0, 0, 0, 0), *tallies, strict=True)))


def _untrusted(plan: StreamPlan, why: str) -> Untrusted:
    return Untrusted(f"{plan.stream} is not in the archive as recorded: {why}; run verify_log")
