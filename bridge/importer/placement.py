"""How a bundle joins on to what is held of its stream: which of its events are new (AGB0 4.8)."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.importer.ledger_tables import ENTRY_BYTES, Run, Span
from veen.range_proof import RangeProof


@dataclass(frozen=True, slots=True)
class Placement:
    """``missing`` are the runs of the bundle that are not held; ``gap`` what is not before it.

    ``fork`` is the place at which what is held and the bundle are two histories.
    """

    missing: tuple[Run, ...] = ()
    duplicates: int = 0
    gap: Span | None = None
    fork: int | None = None


def place(proof: RangeProof, offered: Run, held: list[Run]) -> Placement:
    """``held`` are all runs that touch the bundle, or lie just before or behind it.

    Everything of the bundle is verified; so are leaves and roots of what is held.
    """
    fork = _fork(proof, offered, held)
    if fork is not None:
        return Placement(fork=fork)
    before = offered.span.first - 1
    missing = tuple(_missing(offered, held))
    gap = None
    if before and not any(run.span.first <= before <= run.span.last for run in held):
        gap = Span(1, before)
    new = sum(run.span.size for run in missing)
    return Placement(missing, offered.span.size - new, gap)


def _fork(proof: RangeProof, offered: Run, held: list[Run]) -> int | None:
    first, last = offered.span
    for run in held:
        if run.span.first <= first - 1 <= run.span.last and (
            proof.before().root() != run.root(first - 1)
        ):
            return first - 1
        low, high = max(first, run.span.first), min(last, run.span.last)
        if low <= high and _cut(offered, low, high) != _cut(run, low, high):
            return next(
                seq
                for seq in range(low, high + 1)
                if (offered.leaf(seq), offered.root(seq)) != (run.leaf(seq), run.root(seq))
            )
        if run.span.first == last + 1 and not _leads_to(proof, offered, run):
            return last + 1
    return None


def _leads_to(proof: RangeProof, offered: Run, run: Run) -> bool:
    """Whether the run that is held behind the bundle grows out of it."""
    peaks = proof.before()
    for seq in range(offered.span.first, offered.span.last + 1):
        peaks = peaks.append(offered.leaf(seq))
    first = run.span.first
    return peaks.append(run.leaf(first)).root() == run.root(first)


def _missing(offered: Run, held: list[Run]) -> list[Run]:
    first, last = offered.span
    found, at = [], first
    for run in held:
        if run.span.last < at or run.span.first > last:
            continue
        if run.span.first > at:
            found.append(_part(offered, at, run.span.first - 1))
        at = run.span.last + 1
    if at <= last:
        found.append(_part(offered, at, last))
    return found


def _part(run: Run, first: int, last: int) -> Run:
    return Run(Span(first, last), run.bundle_id, _cut(run, first, last))


def _cut(run: Run, first: int, last: int) -> bytes:
    start = (first - run.span.first) * ENTRY_BYTES
    return run.entries[start : start + (last - first + 1) * ENTRY_BYTES]
