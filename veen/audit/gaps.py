"""Gaps in the numbers of the clients of a label, and the lost entries that may fill them (I9).

A lost entry was one number of one client. It fills a gap only if it was lost after the last entry
of that client, and it fills no second one. Where it turns up out of its place it is known whose it
was; else nobody can tell, and a note names the entries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from veen.audit.findings import ChunkFindings, Jump, Loss, Stray
from veen.audit.report import Fault


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
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lose(self, first: int, last: int) -> None:
        self._holes.append(_Hole(first, last, last - first + 1))

    def settle(self, found: ChunkFindings) -> bool:
        """Take the next chunk; whether lost entries may fill each gap in it."""
        base, is_whole = len(self._holes), True
        filled: list[Jump] = []
        by: dict[int, _Hole] = {}
        self._name(found.strays)
        for one in found.gaps:
            if isinstance(one, Loss):
                last = one.first + one.entries - 1
                self.lose(one.first, last)
                self._name(each for each in found.strays if one.first <= each.stream_seq <= last)
                continue
            since = self._since.get(one.client, 0) if one.since is None else base + one.since
            taken = self._fill(one, since)
            if taken is None:
                self.faults.append(one.fault)
                is_whole = False
            elif taken:
                filled.append(one)
                by |= {hole.first: hole for hole in taken}
        if filled:
            self._note(filled, list(by.values()))
        if self._holes:
            after = dict(found.after)
            self._since |= {client: base + after.get(client, 0) for client, _ in found.lasts}
        return is_whole

    def _fill(self, jump: Jump, since: int) -> list[_Hole] | None:
        """The holes that the numbers of a gap are taken from; None where there are too few.

        The earliest go first: a later one may also fill gaps that begin later.
        """
        known = self._known.get(jump.client, set())
        wanted = jump.gap - sum(0 <= one - jump.first < jump.gap for one in known)
        takes: list[tuple[_Hole, int]] = []
        for hole in self._left(since):
            if not wanted:
                break
            takes.append((hole, min(hole.left, wanted)))
            wanted -= takes[-1][1]
        if wanted:
            return None
        for hole, count in takes:
            hole.left -= count
        if takes:
            gap = range(jump.first, jump.first + jump.gap)
            self._filled.setdefault(jump.client, []).append(gap)
        return [hole for hole, _ in takes]

    def _left(self, since: int) -> Iterator[_Hole]:
        return (self._holes[at] for at in range(since, len(self._holes)) if self._holes[at].left)

    def _name(self, strays: Iterable[Stray]) -> None:
        """Entries that turned up are lost no more; they fill gaps of their own client alone."""
        for seq, client, number in strays:
            hole = self._hole_of(seq)
            if hole is None or seq in self._named:
                continue
            self._named.add(seq)
            self._known.setdefault(client, set()).add(number)
            # A gap that was filled before the entry turned up has taken its place in the hole.
            is_filled = any(number in gap for gap in self._filled.get(client, ()))
            hole.left -= not is_filled and hole.left > 0

    def _hole_of(self, seq: int) -> _Hole | None:
        at = bisect_right(self._holes, seq, key=lambda one: one.first)
        return self._holes[at - 1] if at and seq <= self._holes[at - 1].last else None

    def _note(self, filled: list[Jump], holes: list[_Hole]) -> None:
        file, entries = filled[0].fault.file, ", ".join(str(one.fault.stream_seq) for one in filled)
        lost = ", ".join(map(str, holes))
        self.notes.append(
            f"{file}: before entries {entries} client_seq leaves gaps that are faults unless the "
            f"lost entries {lost} were these clients'"
        )
