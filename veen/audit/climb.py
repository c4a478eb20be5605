"""The range of a label, followed from entry to entry and found again after a fault (spec 5.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from veen import layout, mmr
from veen.audit.findings import Read, Task
from veen.chunk import PeakSnapshot
from veen.errors import Malformed
from veen.mmr import Peaks
from veen.receipt import Receipt

Hint = Callable[[int], Peaks | None]
"""The peaks at a size as someone believes them to be: a signed root must confirm them."""


def no_hint(_size: int) -> Peaks | None:
    return None


class Suspect(NamedTuple):
    """An entry whose root is wrong, if a guess at the range before it proves right."""

    stream_seq: int
    at: int


def read_snapshot(read: Read, label: bytes, size: int) -> Peaks | None:
    """The peaks at a size as their snapshot has them, if it is one."""
    if size == 0:
        return mmr.EMPTY
    try:
        found = PeakSnapshot.decode(read(layout.peaks(label, size)) or b"")
    except Malformed:
        return None
    return found.to_peaks() if (found.label, found.upto_seq) == (label, size) else None


class Climb:
    """``peaks`` is None while a fault leaves the range unknown.

    Entries and snapshots lead it back: a guess goes on from leaf to leaf until a signed root or a
    snapshot bears it out, and then every root in between was wrong. A hint never leads back: by it
    a root is checked that could not be otherwise, and nothing more, so that whoever has no hints
    finds the same state.
    """

    def __init__(self, task: Task, read: Read, peaks: Peaks | None, hint: Hint) -> None:
        self._task = task
        self._read = read
        self._hint = hint
        self._hinted: Peaks | None = None
        self._guesses: list[Peaks] = []
        self._suspects: list[Suspect] = []
        self._adrift: list[int] = []
        self.peaks = peaks
        self.wrong: list[Suspect] = []

    @property
    def adrift(self) -> list[int]:
        """The entries whose root rests on others that are missing or cannot be read."""
        return sorted([*self._adrift, *(one.stream_seq for one in self._suspects)])

    def step(self, receipt: Receipt, leaf: bytes | None, at: int) -> bool:
        """Whether the root of a receipt is that after its leaf, or after the message's own."""
        before = self.peaks
        if before is None or before.size != receipt.stream_seq - 1:
            before = self._found(receipt)
            if before is None:
                self._drift(receipt, leaf, at)
                return False
        after = before.append(receipt.leaf_hash)
        if after.root() == receipt.mmr_root:
            self.peaks = after
            return True
        return self._other(before, receipt, leaf, at)

    def lose(self, leaf: bytes | None) -> None:
        """Go on after an entry whose receipt cannot be read."""
        known = [self.peaks] if self.peaks is not None else self._guesses
        self.miss()
        self._guess([] if leaf is None else [one.append(leaf) for one in known])

    def miss(self) -> None:
        """Go on after entries that are not there."""
        self.peaks = None
        self._hinted = None

    def settle(self, size: int) -> None:
        """Take up the range again where its snapshot says the same as a guess."""
        if self.peaks is None and self._guesses:
            self._confirm(self._snapshot(size))

    def _found(self, receipt: Receipt) -> Peaks | None:
        size = receipt.stream_seq - 1
        for guess in self._guesses:
            if guess.size == size and _leads_to(guess, receipt):
                self._confirm(guess)
                return guess
        snapshot = self._snapshot(size)
        return snapshot if snapshot is not None and _leads_to(snapshot, receipt) else None

    def _confirm(self, guess: Peaks | None) -> None:
        if guess in self._guesses:
            self.peaks = guess
            self.wrong += self._suspects
            self._suspects.clear()
            self._guesses.clear()

    def _guess(self, guesses: list[Peaks]) -> None:
        """Go on from guesses; without any, nothing will tell whether the roots so far are wrong."""
        self._guesses = guesses
        if not guesses:
            self._adrift += (one.stream_seq for one in self._suspects)
            self._suspects.clear()

    def _snapshot(self, size: int) -> Peaks | None:
        is_there = size in self._task.snapshots or size == self._task.segment.start_seq - 1
        return read_snapshot(self._read, self._task.label, size) if is_there else None

    def _other(self, before: Peaks, receipt: Receipt, leaf: bytes | None, at: int) -> bool:
        by_message = before.append(leaf) if leaf and leaf != receipt.leaf_hash else None
        if by_message is not None and by_message.root() == receipt.mmr_root:
            self.peaks = by_message
            return True
        self.miss()
        self.wrong.append(Suspect(receipt.stream_seq, at))
        self._guess([one for one in (before.append(receipt.leaf_hash), by_message) if one])
        return False

    def _drift(self, receipt: Receipt, leaf: bytes | None, at: int) -> None:
        seq = receipt.stream_seq
        self.peaks = None
        self._guess([one.append(receipt.leaf_hash) for one in self._guesses if one.size == seq - 1])
        if self._guesses:
            self._suspects.append(Suspect(seq, at))
        else:
            self._adrift.append(seq)
        if self._hints_otherwise(receipt, leaf):
            self.wrong.append(Suspect(seq, at))

    def _hints_otherwise(self, receipt: Receipt, leaf: bytes | None) -> bool:
        """Whether a hint that an earlier root has confirmed leads to another root than this."""
        size, followed = receipt.stream_seq - 1, self._hinted
        is_known = followed is not None and followed.size == size
        before = followed if is_known else self._hint(size)
        if before is None:
            return False
        by_leaves = [before.append(one) for one in (receipt.leaf_hash, leaf) if one]
        after = next((one for one in by_leaves if one.root() == receipt.mmr_root), None)
        self._hinted = after or (by_leaves[0] if is_known else None)
        return is_known and after is None


def _leads_to(before: Peaks, receipt: Receipt) -> bool:
    return before.append(receipt.leaf_hash).root() == receipt.mmr_root
