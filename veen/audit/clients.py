"""Gaps in the numbers of the clients of a label, and the lost entries that may fill them (I9).

A lost entry was one number of one client. It fills a gap only if it was lost after the last entry
of that client, and it fills no second one. Where it turns up out of its place it is known whose it
was; else nobody can tell, and a note names the entries.

Rates, which span labels: every use of a capability in the order of hub time (I7).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from veen.audit.context import ChunkFindings, Context, Jump, Loss, RateUse, Read, Stray
from veen.audit.entries import Good, split
from veen.audit.report import AuditFault
from veen.captoken import Rate, TokenBucket
from veen.log import layout
from veen.log.layout import leaf_file, unpack_leaves


@dataclass(slots=True)
class _Hole:
    """Lost entries, one after another; of ``left`` nobody has said whose they were."""

    first: int
    last: int
    left: int

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(slots=True)
class Gaps:
    _holes: list[_Hole] = field(default_factory=list)
    _since: dict[bytes, int] = field(default_factory=dict)
    """How many holes came before the last entry of a client."""
    _known: dict[bytes, set[int]] = field(default_factory=dict)
    """The numbers of clients that turned up out of place."""
    _named: set[int] = field(default_factory=set)
    _filled: dict[bytes, list[range]] = field(default_factory=dict)
    faults: list[AuditFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lose(self, first: int, last: int) -> None:
        self._holes.append(_Hole(first, last, last - first + 1))

    def settle(self, findings: ChunkFindings) -> bool:
        """Take the next chunk; whether lost entries may fill each gap in it."""
        base, is_whole = len(self._holes), True
        filled: list[Jump] = []
        by: dict[int, _Hole] = {}
        self._name(findings.misplaced)
        for gap in findings.gaps:
            if isinstance(gap, Loss):
                last = gap.first + gap.entries - 1
                self.lose(gap.first, last)
                self._name(
                    each for each in findings.misplaced if gap.first <= each.stream_seq <= last
                )
                continue
            since = self._since.get(gap.client, 0) if gap.since is None else base + gap.since
            taken = self._fill(gap, since)
            if taken is None:
                self.faults.append(gap.fault)
                is_whole = False
            elif taken:
                filled.append(gap)
                by |= {hole.first: hole for hole in taken}
        if filled:
            self._note(filled, list(by.values()))
        if self._holes:
            after = dict(findings.after)
            self._since |= {client: base + after.get(client, 0) for client, _ in findings.lasts}
        return is_whole

    def _fill(self, jump: Jump, since: int) -> list[_Hole] | None:
        """The holes that the numbers of a gap are taken from; None where there are too few.

        The earliest go first: a later one may also fill gaps that begin later.
        """
        known = self._known.get(jump.client, set())
        expected = jump.gap - sum(0 <= item - jump.first < jump.gap for item in known)
        takes: list[tuple[_Hole, int]] = []
        for hole in self._left(since):
            if not expected:
                break
            takes.append((hole, min(hole.left, expected)))
            expected -= takes[-1][1]
        if expected:
            return None
        for hole, count in takes:
            hole.left -= count
        if takes:
            gap = range(jump.first, jump.first + jump.gap)
            self._filled.setdefault(jump.client, []).append(gap)
        return [hole for hole, _ in takes]

    def _left(self, since: int) -> Iterator[_Hole]:
        return (self._holes[at] for at in range(since, len(self._holes)) if self._holes[at].left)

    def _name(self, misplaced: Iterable[Stray]) -> None:
        """Entries that turned up are lost no more; they fill gaps of their own client alone."""
        for seq, client, number in misplaced:
            hole = self._hole_of(seq)
            if hole is None or seq in self._named:
                continue
            self._named.add(seq)
            self._known.setdefault(client, set()).add(number)
            # A gap that was filled before the entry turned up has taken its place in the hole.
            is_filled = any(number in gap for gap in self._filled.get(client, ()))
            hole.left -= not is_filled and hole.left > 0

    def _hole_of(self, seq: int) -> _Hole | None:
        at = bisect_right(self._holes, seq, key=lambda item: item.first)
        return self._holes[at - 1] if at and seq <= self._holes[at - 1].last else None

    def _note(self, filled: list[Jump], holes: list[_Hole]) -> None:
        file, entries = (
            filled[0].fault.file,
            ", ".join(str(jump.fault.stream_seq) for jump in filled),
        )
        lost = ", ".join(map(str, holes))
        self.notes.append(
            f"{file}: before entries {entries} client_seq leaves gaps that are faults unless the "
            f"lost entries {lost} were these clients'"
        )


class RateUses(NamedTuple):
    """Uses of one second in one chunk."""

    file: str
    label: bytes
    start_seq: int
    use: RateUse


class _Excess(NamedTuple):
    placed: RateUses
    times: int


def check_rates(uses: Iterable[RateUses], context: Context, read: Read) -> Iterator[AuditFault]:
    """Debit every use; those beyond what the rate allows are looked up and told."""
    by_ref: dict[bytes, list[RateUses]] = {}
    for placed in uses:
        by_ref.setdefault(placed.use.auth_ref, []).append(placed)
    for ref, result in by_ref.items():
        token, issued_at = context.capabilities[ref]
        if token.allow.rate is None:
            continue
        for excess in _debited(result, token.allow.rate, issued_at):
            yield from _describe(excess, context, read)


def _debited(uses: list[RateUses], rate: Rate, issued_at: int) -> Iterator[_Excess]:
    bucket = TokenBucket.full(rate, issued_at)
    for placed in sorted(uses, key=lambda item: (item.use.hub_ts, item.label, item.start_seq)):
        bucket = bucket.refilled(rate, placed.use.hub_ts)
        allowed = min(bucket.tokens, placed.use.times)
        bucket = TokenBucket(bucket.tokens - allowed, bucket.at)
        if placed.use.times > allowed:
            yield _Excess(placed, placed.use.times - allowed)


def _describe(excess: _Excess, context: Context, read: Read) -> Iterator[AuditFault]:
    """The last uses of the second are those that were too many."""
    places = sorted(dict(_places(excess.placed, context, read)).items())
    for seq, at in places[-excess.times :]:
        what = "faster than the capability allows"
        yield AuditFault(excess.placed.file, at, seq, what, "I7")


def _places(placed: RateUses, context: Context, read: Read) -> Iterator[tuple[int, int]]:
    """stream_seq and offset of the entries of one second under one capability."""
    raw = read(placed.file)
    if raw is None:
        yield from _pruned(placed, read)
        return
    for frame in split(raw, placed.label, context.limits):
        if not isinstance(frame, Good):
            continue
        msg, receipt = frame.framed.msg, frame.framed.receipt
        if (msg.auth_ref, receipt.hub_ts) == (placed.use.auth_ref, placed.use.hub_ts):
            yield receipt.stream_seq, frame.at


def _pruned(placed: RateUses, read: Read) -> Iterator[tuple[int, int]]:
    name = layout.parse_chunk(placed.file)
    if name is None:
        return
    records = unpack_leaves(read(leaf_file(name)) or b"", name)
    for seq, record in enumerate(records, name.start_seq):
        if (record.auth_ref, record.hub_ts) == (placed.use.auth_ref, placed.use.hub_ts):
            yield seq, record.at
