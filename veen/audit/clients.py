"""Gaps in the client sequences of a label, and the rates of capabilities (I7, I9).

A lost entry was one client_seq of one client. It fills a gap only if it was lost after the last
entry of that client, and it fills a single gap. Where it turns up out of its place its client is
known; otherwise a note names the entries. Rates span labels: every use of a capability is debited
in the order of hub time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from veen.audit.context import ChunkFindings, Context, Jump, Loss, MisplacedEntry, RateUse, Read
from veen.audit.entries import SoundFrame, split
from veen.audit.report import AuditFault
from veen.captoken import Rate, TokenBucket
from veen.log import layout
from veen.log.layout import leaf_file, unpack_leaves


@dataclass(slots=True)
class _LostRun:
    """Consecutive lost entries, of which ``left`` are not assigned to a client."""

    first: int
    last: int
    left: int

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(slots=True)
class Gaps:
    """Assigns the lost entries of a label to the gaps of its clients."""

    _lost: list[_LostRun] = field(default_factory=list)
    _since: dict[bytes, int] = field(default_factory=dict)
    """The number of losses before the last entry of a client."""
    _known: dict[bytes, set[int]] = field(default_factory=dict)
    """The client_seq of entries that turned up out of place."""
    _named: set[int] = field(default_factory=set)
    _filled: dict[bytes, list[range]] = field(default_factory=dict)
    faults: list[AuditFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lose(self, first: int, last: int) -> None:
        self._lost.append(_LostRun(first, last, last - first + 1))

    def settle(self, findings: ChunkFindings) -> bool:
        """Take the next chunk; whether lost entries may fill all its gaps."""
        base, is_whole = len(self._lost), True
        filled: list[Jump] = []
        by: dict[int, _LostRun] = {}
        self._name(findings.misplaced)
        for gap in findings.gaps:
            if isinstance(gap, Loss):
                last = gap.first + gap.entries - 1
                self.lose(gap.first, last)
                self._name(
                    entry for entry in findings.misplaced if gap.first <= entry.stream_seq <= last
                )
                continue
            since = self._since.get(gap.client, 0) if gap.since is None else base + gap.since
            runs = self._fill(gap, since)
            if runs is None:
                self.faults.append(gap.fault)
                is_whole = False
            elif runs:
                filled.append(gap)
                by |= {run.first: run for run in runs}
        if filled:
            self._note(filled, list(by.values()))
        if self._lost:
            after = dict(findings.after)
            self._since |= {client: base + after.get(client, 0) for client, _ in findings.lasts}
        return is_whole

    def _fill(self, jump: Jump, since: int) -> list[_LostRun] | None:
        """The lost runs that fill a gap; None where there are too few.

        The earliest are used first: later runs may also fill gaps that begin later.
        """
        known = self._known.get(jump.client, set())
        missing = jump.gap - sum(0 <= seq - jump.first < jump.gap for seq in known)
        takes: list[tuple[_LostRun, int]] = []
        for run in self._left(since):
            if not missing:
                break
            takes.append((run, min(run.left, missing)))
            missing -= takes[-1][1]
        if missing:
            return None
        for run, count in takes:
            run.left -= count
        if takes:
            gap = range(jump.first, jump.first + jump.gap)
            self._filled.setdefault(jump.client, []).append(gap)
        return [run for run, _ in takes]

    def _left(self, since: int) -> Iterator[_LostRun]:
        return (self._lost[at] for at in range(since, len(self._lost)) if self._lost[at].left)

    def _name(self, misplaced: Iterable[MisplacedEntry]) -> None:
        """Assign entries that turned up to their client, whose gaps alone they fill."""
        for seq, client, number in misplaced:
            run = self._run_of(seq)
            if run is None or seq in self._named:
                continue
            self._named.add(seq)
            self._known.setdefault(client, set()).add(number)
            # A gap that was filled before the entry turned up was counted already.
            is_filled = any(number in gap for gap in self._filled.get(client, ()))
            run.left -= not is_filled and run.left > 0

    def _run_of(self, seq: int) -> _LostRun | None:
        at = bisect_right(self._lost, seq, key=lambda run: run.first)
        return self._lost[at - 1] if at and seq <= self._lost[at - 1].last else None

    def _note(self, filled: list[Jump], runs: list[_LostRun]) -> None:
        file, entries = (
            filled[0].fault.file,
            ", ".join(str(jump.fault.stream_seq) for jump in filled),
        )
        lost = ", ".join(map(str, runs))
        self.notes.append(
            f"{file}: before entries {entries} client_seq leaves gaps that are faults unless the "
            f"lost entries {lost} were these clients'"
        )


class RateUses(NamedTuple):
    """The uses of a capability within a second in a chunk."""

    file: str
    label: bytes
    start_seq: int
    use: RateUse


class _Excess(NamedTuple):
    placed: RateUses
    times: int


def check_rates(uses: Iterable[RateUses], context: Context, read: Read) -> Iterator[AuditFault]:
    """Debit every use in the order of hub time; faults for those above the rate."""
    by_ref: dict[bytes, list[RateUses]] = {}
    for placed in uses:
        by_ref.setdefault(placed.use.auth_ref, []).append(placed)
    for ref, rate_uses in by_ref.items():
        token, issued_at = context.capabilities[ref]
        if token.allow.rate is None:
            continue
        for excess in _debited(rate_uses, token.allow.rate, issued_at):
            yield from _excess_faults(excess, context, read)


def _debited(uses: list[RateUses], rate: Rate, issued_at: int) -> Iterator[_Excess]:
    bucket = TokenBucket.full(rate, issued_at)
    for placed in sorted(
        uses, key=lambda placed: (placed.use.hub_ts, placed.label, placed.start_seq)
    ):
        bucket = bucket.refilled(rate, placed.use.hub_ts)
        allowed = min(bucket.tokens, placed.use.times)
        bucket = TokenBucket(bucket.tokens - allowed, bucket.at)
        if placed.use.times > allowed:
            yield _Excess(placed, placed.use.times - allowed)


def _excess_faults(excess: _Excess, context: Context, read: Read) -> Iterator[AuditFault]:
    """Faults for the last uses of the second, which were above the rate."""
    places = sorted(dict(_places(excess.placed, context, read)).items())
    for seq, at in places[-excess.times :]:
        what = "the rate is above that of the capability"
        yield AuditFault(excess.placed.file, at, seq, what, "I7")


def _places(placed: RateUses, context: Context, read: Read) -> Iterator[tuple[int, int]]:
    """stream_seq and offset of the entries of one second under one capability."""
    raw = read(placed.file)
    if raw is None:
        yield from _pruned(placed, read)
        return
    for frame in split(raw, placed.label, context.limits):
        if not isinstance(frame, SoundFrame):
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
