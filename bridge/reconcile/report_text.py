"""A report in a few lines for people: what is whole, what is not, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.printable import printable
from bridge.reconcile.alarms import LedgerReport
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.report import Report
from bridge.reconcile.stream_report import Class, StreamReport
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG

_MOST_RANGES: Final = 8
_MOST_BUNDLES: Final = 8
_ADVICE: Final = {
    Class.PARTIAL: "run veen bridge import again; it goes on where it stopped",
    Class.WAITING: "they go in by themselves once what is missing before them is there",
    Class.QUARANTINED: "see the reason in quarantine/, then export these again",
    Class.MISSING: "carry the gap file to the exporter: veen bridge export --from-gap-file",
}


def text(report: Report) -> str:
    return "".join(f"{one}\n" for one in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"reconciliation  {'whole' if report.is_whole else 'NOT WHOLE'}"
    yield f"report          {report.digest().hex()}"
    yield f"closed before   hub time {report.closed_before}, all streams"
    for one in report.streams:
        yield from _stream(one)
    for ledger in report.ledgers:
        yield from _ledger(ledger)
    for fork in report.forks:
        yield (
            f"ALARM           {printable(fork.stream)} of hub {fork.hub_id.hex()[:16]} has two "
            f"histories at {fork.seq}; keep both receipts, trust neither"
        )
    for stranger in report.strangers[:_MOST_RANGES]:
        due = "entry" if stranger.target in (ONLINE_LOG, OFFLINE_LOG) else "imported event"
        yield (
            f"ALARM           {printable(stranger.target)} {stranger.seq} is no {due}; "
            "find out who may write there"
        )
    if report.repeats:
        times = sum(one for _, one in report.repeats)
        yield f"presented again {len(report.repeats)} bundles, {times} times; nothing was doubled"
    for bundle_id in report.unplaced:
        yield f"refused unread  bundle {bundle_id.hex()}; nothing tells what it holds"


def _stream(one: StreamReport) -> Iterator[str]:
    yield f"stream          {printable(one.stream)} of hub {one.hub_id.hex()[:16]}"
    yield f"  closed        1 to {one.closed.to_seq} of {one.horizon}, before {one.closed.before}"
    for name, found in one.classes.items():
        if found:
            yield f"  {name.value:<13} {_ranges(found)}"
        if found and name in _ADVICE:
            yield f"  {'':<13} {_ADVICE[name]}"
    for word, found in (
        ("DOUBLED", one.duplicate),
        ("UNFULFILLED", one.unfulfilled),
        ("unannounced", one.unannounced),
        ("untold", one.untold),
    ):
        if found:
            yield f"  {word:<13} {_ranges(found)}"
    for bundle in one.bundles[:_MOST_BUNDLES]:
        by = ", ".join(bundle.told_by)
        yield (
            f"  bundle        {bundle.bundle_id.hex()} {bundle.first} to {bundle.last}: "
            f"{bundle.state.value}, told by {by}"
        )
    if len(one.bundles) > _MOST_BUNDLES:
        yield f"  bundle        and {len(one.bundles) - _MOST_BUNDLES} more"


def _ledger(one: LedgerReport) -> Iterator[str]:
    yield f"ledger          of bridge {one.bridge_id.hex()[:16]}, {one.newest} entries"
    if one.unknown:
        yield f"  unknown       entries {_ranges(one.unknown)}: lost, with every carrier after them"
    for word, numbers in (("REPEATED", one.repeated), ("FORKED", one.forked)):
        if numbers:
            yield f"  {word:<13} {_ranges(Ranges((n, n) for n in numbers))}"


def _ranges(found: Ranges) -> str:
    spans = [f"{one.first}-{one.last}" if one.first < one.last else f"{one.first}" for one in found]
    rest = f" and {len(spans) - _MOST_RANGES} more ranges" if len(spans) > _MOST_RANGES else ""
    return f"{', '.join(spans[:_MOST_RANGES])}{rest} ({found.count})"
