"""What the chunks of a query come to together: roots that must be the checkpoint's, and spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recorder.query.span import Span
from spark_jobs.query_found import Facts, Tally
from spark_jobs.query_nodes import Place, Upper
from spark_jobs.query_plan import StreamPlan
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
    upper = _reached(plan, found)
    spans, unread, matched = {}, {}, {}
    start = plan.peaks.size + 1
    for question in plan.questions:
        tally = _total([one.tallies[question] for one in found])
        spans[question] = Span(start + tally.before, start + tally.upto - 1)
        unread[question], matched[question] = tally.unread, tally.matched
    return StreamFindings(plan.stream, plan.end.last_seq, upper.nodes, spans, unread, matched)


def _reached(plan: StreamPlan, found: Sequence[Facts]) -> Upper:
    upper, last_ts = Upper(plan.peaks), 0
    for piece, one in zip(plan.pieces, found, strict=True):
        file = piece.chunk.file
        if piece.chunk.name.start_seq != upper.peaks.size + 1:
            raise _untrusted(plan, f"{file} is not the next chunk after {upper.peaks.size}")
        if one.first_ts < last_ts:
            raise _untrusted(plan, f"times go back at the start of {file}")
        last_ts = one.last_ts
        for top in one.tops:
            upper.graft(top)
    if plan.peaks.size and found[0].first_ts >= plan.span.first:
        raise _untrusted(plan, "the times of its manifest are not those of its chunks")
    if upper.peaks.size != plan.end.last_seq:
        raise _untrusted(plan, f"its chunks end at {upper.peaks.size}")
    if upper.peaks.size and upper.peaks.root() != plan.end.mmr_root:
        raise _untrusted(plan, "its chunks do not lead to the root of the checkpoint")
    return upper


def _total(tallies: Sequence[Tally]) -> Tally:
    return Tally(*(sum(column) for column in zip(Tally(0, 0, 0, 0), *tallies, strict=True)))


def _untrusted(plan: StreamPlan, why: str) -> Untrusted:
    return Untrusted(f"{plan.stream} is not in the archive as recorded: {why}; run verify_log")
