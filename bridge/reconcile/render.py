"""Output of a reconciliation: report, picture, summary for people, and gap files (AGB0 4.7).

The picture is an SVG with a row for each stream, whose events run from left to right in the colour
of their class. It has neither scripts nor links, and its size does not depend on the history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from bridge.errors import printable
from bridge.exporter.gaps import ExportGap, GapFile
from bridge.reconcile.ranges import EventRange, Ranges
from bridge.reconcile.report import (
    Class,
    LedgerReport,
    ReconcileReport,
    SignedReconcileReport,
    StreamReport,
)
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG
from veen.crypto import SigningKey
from veen.system import durable
from veen.timestamp import readable_time

MOST_ROWS: Final = 200
_WIDTH: Final = 800
_LEFT: Final = 20
_ROW: Final = 46
_BAR: Final = 16
_TOP: Final = 86
_NAME: Final = 90
_HEAD: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
    'aria-labelledby="title desc" font-family="sans-serif" font-size="12">'
)
_COLOURS: Final = {
    "unreported": "#dddddd",
    Class.IMPORTED.value: "#009e73",
    Class.EXCLUDED.value: "#999999",
    Class.WAITING.value: "#56b4e9",
    Class.PARTIAL.value: "#e69f00",
    Class.QUARANTINED.value: "#cc79a7",
    Class.MISSING.value: "#d55e00",
    "duplicate": "#000000",
}
"""In order of weight: if a pixel stands for many events, it has the last colour that applies to
any of them, so that no loss is too small to show. The palette is safe for colour-blind people."""
_MOST_RANGES: Final = 8
_MOST_BUNDLES: Final = 8
_ADVICE: Final = {
    Class.PARTIAL: "run veen bridge import again; it goes on where it stopped",
    Class.WAITING: "they are imported automatically when the events before them have arrived",
    Class.QUARANTINED: "see the reason in quarantine/, then export these again",
    Class.MISSING: "carry the gap file to the exporter: veen bridge export --from-gap-file",
}


def gap_files(
    report: ReconcileReport, classes: Collection[Class] = (Class.MISSING,)
) -> list[GapFile]:
    """A gap file for each hub with missing events."""
    by_hub: dict[bytes, list[ExportGap]] = defaultdict(list)
    for stream in report.streams:
        for kind in classes:
            by_hub[stream.hub_id] += [
                ExportGap(stream.stream, *span) for span in stream.classes[kind]
            ]
    return [GapFile.of(hub_id, gaps) for hub_id, gaps in sorted(by_hub.items()) if gaps]


def svg(report: ReconcileReport) -> str:
    """An SVG document; if there are too many streams, those that need action come first."""
    rows = sorted(report.streams, key=lambda item: item.is_whole)[:MOST_ROWS]
    height = _TOP + _ROW * len(rows) + 30
    return "\n".join(
        [
            _HEAD.format(width=_WIDTH + 2 * _LEFT, height=height),
            '<title id="title">Reconciliation of a bridge</title>',
            f'<desc id="desc">{escape(_description(report))}</desc>',
            f'<rect width="100%" height="{height}" fill="#ffffff"/>',
            f'<text x="{_LEFT}" y="24" font-size="16">{escape(_headline(report))}</text>',
            *_legend(),
            *(line for at, row in enumerate(rows) for line in _row(row, _TOP + _ROW * at)),
            *_rest(report, len(rows), height),
            "</svg>",
            "",
        ]
    )  # fmt: skip


def _headline(report: ReconcileReport) -> str:
    verdict = "whole" if report.is_whole else "not whole"
    return (
        f"Reconciliation: {verdict}; closed before hub time {readable_time(report.closed_before)}"
    )


def _description(report: ReconcileReport) -> str:
    counts = ", ".join(f"{report.count(class_)} {class_.value}" for class_ in Class)
    return f"{_headline(report)}. Events of {len(report.streams)} streams: {counts}."


def _legend() -> Iterator[str]:
    for at, (name, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + at * 98
        yield f'<rect x="{x}" y="40" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 16}" y="51">{name}</text>'


def _row(report: StreamReport, y: int) -> Iterator[str]:
    name = escape(printable(report.stream, _NAME))
    detail = (
        f"closed 1 to {report.closed.to_seq}, before {report.closed.before}; last {report.horizon}"
    )
    yield f'<g><title>{name}: {detail}</title><text x="{_LEFT}" y="{y}">{name}</text>'
    yield f'<text x="{_LEFT + _WIDTH}" y="{y}" text-anchor="end">{detail}</text>'
    x = _LEFT
    for colour, dots in groupby(_painted(report)):
        width = len(list(dots))
        if colour:
            yield (
                f'<rect x="{x}" y="{y + 6}" width="{width}" height="{_BAR}" '
                f'fill="{_COLOURS[colour]}"/>'
            )
        x += width
    if report.closed.to_seq:
        end = _LEFT + _WIDTH * report.closed.to_seq // report.horizon
        yield f'<path d="M{_LEFT} {y + 26}H{end}v-4" fill="none" stroke="#000000"/>'
    yield "</g>"


def _painted(report: StreamReport) -> list[str]:
    """The class of each pixel of a row."""
    dots = [""] * _WIDTH
    spans = {name.value: ranges for name, ranges in report.classes.items()}
    spans |= {"unreported": report.unreported, "duplicate": report.duplicate}
    for name in _COLOURS:
        for span in spans[name]:
            first, last = _dots(span, report.horizon)
            dots[first : last + 1] = [name] * (last - first + 1)
    return dots


def _dots(span: EventRange, horizon: int) -> tuple[int, int]:
    return _WIDTH * (span.first - 1) // horizon, (_WIDTH * span.last - 1) // horizon


def _rest(report: ReconcileReport, shown: int, height: int) -> Iterator[str]:
    if len(report.streams) > shown:
        left = len(report.streams) - shown
        yield f'<text x="{_LEFT}" y="{height - 10}">and {left} more streams</text>'


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPlaces:
    """The output paths, None for an output that is not requested; ``gaps`` is a directory."""

    out: Path | None = None
    picture: Path | None = None
    gaps: Path | None = None


def keep(report: ReconcileReport, signer: SigningKey | None, places: ReportPlaces) -> None:
    """Write the outputs, whose bytes depend on the report alone; without a signer it is
    unsigned.
    """
    if places.out is not None:
        encoded = SignedReconcileReport.of(report, signer).encode() if signer else report.encode()
        durable.write(places.out.absolute(), encoded + b"\n")
    if places.picture is not None:
        durable.write(places.picture.absolute(), svg(report).encode())
    if places.gaps is not None:
        durable.make_directory(places.gaps.absolute())
        for gap_file in gap_files(report):
            name = f"gap-{gap_file.source_hub_id.hex()[:16]}.json"
            durable.write(places.gaps.absolute() / name, gap_file.encode() + b"\n")


def text(report: ReconcileReport) -> str:
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: ReconcileReport) -> Iterator[str]:
    yield f"reconciliation  {'whole' if report.is_whole else 'NOT WHOLE'}"
    yield f"report          {report.digest().hex()}"
    yield f"closed before   hub time {readable_time(report.closed_before)}, all streams"
    for stream in report.streams:
        yield from _stream(stream)
    for ledger in report.ledgers:
        yield from _ledger(ledger)
    for fork in report.forks:
        yield (
            f"ALARM           {printable(fork.stream)} of hub {fork.hub_id.hex()[:16]} has two "
            f"histories at {fork.seq}; keep both receipts, trust neither"
        )
    for message in report.foreign[:_MOST_RANGES]:
        expected = "entry" if message.target in (ONLINE_LOG, OFFLINE_LOG) else "imported event"
        yield (
            f"ALARM           {printable(message.target)} {message.seq} is no {expected}; "
            "find out who may write there"
        )
    if report.repeats:
        times = sum(count for _, count in report.repeats)
        yield f"presented again {len(report.repeats)} bundles, {times} times; nothing was doubled"
    for bundle_id in report.unplaced:
        yield f"refused unread  bundle {bundle_id.hex()}; its range is unknown"


def _stream(report: StreamReport) -> Iterator[str]:
    yield f"stream          {printable(report.stream)} of hub {report.hub_id.hex()[:16]}"
    closed, before = report.closed, readable_time(report.closed.before)
    yield f"  closed        1 to {closed.to_seq} of {report.horizon}, before {before}"
    for name, ranges in report.classes.items():
        if ranges:
            yield f"  {name.value:<13} {_ranges(ranges)}"
        if ranges and name in _ADVICE:
            yield f"  {'':<13} {_ADVICE[name]}"
    for word, ranges in (
        ("DOUBLED", report.duplicate),
        ("UNFULFILLED", report.unfulfilled),
        ("unannounced", report.unannounced),
        ("unreported", report.unreported),
    ):
        if ranges:
            yield f"  {word:<13} {_ranges(ranges)}"
    for bundle in report.bundles[:_MOST_BUNDLES]:
        by = ", ".join(bundle.described_by)
        yield (
            f"  bundle        {bundle.bundle_id.hex()} {bundle.first} to {bundle.last}: "
            f"{bundle.state.value}, described by {by}"
        )
    if len(report.bundles) > _MOST_BUNDLES:
        yield f"  bundle        and {len(report.bundles) - _MOST_BUNDLES} more"


def _ledger(report: LedgerReport) -> Iterator[str]:
    yield f"ledger          of bridge {report.bridge_id.hex()[:16]}, {report.newest} entries"
    if report.unknown:
        unknown = _ranges(report.unknown)
        yield f"  unknown       entries {unknown}: lost, with every carrier after them"
    for word, numbers in (("REPEATED", report.repeated), ("FORKED", report.forked)):
        if numbers:
            yield f"  {word:<13} {_ranges(Ranges((n, n) for n in numbers))}"


def _ranges(ranges: Ranges) -> str:
    spans = [
        f"{span.first}-{span.last}" if span.first < span.last else f"{span.first}"
        for span in ranges
    ]
    rest = f" and {len(spans) - _MOST_RANGES} more ranges" if len(spans) > _MOST_RANGES else ""
    return f"{', '.join(spans[:_MOST_RANGES])}{rest} ({ranges.count})"
