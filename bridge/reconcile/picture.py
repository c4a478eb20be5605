"""A report as a picture: one lane a stream, its events from left to right in the colour of their
class. No script, no link, and no larger for a longer history.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final
from xml.sax.saxutils import escape

from bridge.printable import printable
from bridge.reconcile.ranges import Range
from bridge.reconcile.report import Report
from bridge.reconcile.stream_report import Class, StreamReport

MOST_LANES: Final = 200
_WIDTH: Final = 800
_LEFT: Final = 20
_LANE: Final = 46
_BAR: Final = 16
_TOP: Final = 86
_NAME: Final = 90

_HEAD: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
    'aria-labelledby="title desc" font-family="sans-serif" font-size="12">'
)
_COLOURS: Final = {
    "untold": "#dddddd",
    Class.IMPORTED.value: "#009e73",
    Class.EXCLUDED.value: "#999999",
    Class.WAITING.value: "#56b4e9",
    Class.PARTIAL.value: "#e69f00",
    Class.QUARANTINED.value: "#cc79a7",
    Class.MISSING.value: "#d55e00",
    "duplicate": "#000000",
}
"""In the order of their weight: where one dot stands for many events, the last that holds of any
of them is seen, so that no loss is too small to show. The colours are told apart by everybody."""


def svg(report: Report) -> str:
    """One SVG document; lanes that need something come first when there are too many."""
    lanes = sorted(report.streams, key=lambda one: one.is_whole)[:MOST_LANES]
    height = _TOP + _LANE * len(lanes) + 30
    return "\n".join(
        [
            _HEAD.format(width=_WIDTH + 2 * _LEFT, height=height),
            '<title id="title">Reconciliation of a bridge</title>',
            f'<desc id="desc">{escape(_description(report))}</desc>',
            f'<rect width="100%" height="{height}" fill="#ffffff"/>',
            f'<text x="{_LEFT}" y="24" font-size="16">{escape(_headline(report))}</text>',
            *_legend(),
            *(part for at, one in enumerate(lanes) for part in _lane(one, _TOP + _LANE * at)),
            *_rest(report, len(lanes), height),
            "</svg>",
            "",
        ]
    )  # fmt: skip


def _headline(report: Report) -> str:
    verdict = "whole" if report.is_whole else "not whole"
    return f"Reconciliation: {verdict}; closed before hub time {report.closed_before}"


def _description(report: Report) -> str:
    counts = ", ".join(f"{report.count(one)} {one.value}" for one in Class)
    return f"{_headline(report)}. Events of {len(report.streams)} streams: {counts}."


def _legend() -> Iterator[str]:
    for at, (name, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + at * 98
        yield f'<rect x="{x}" y="40" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 16}" y="51">{name}</text>'


def _lane(one: StreamReport, y: int) -> Iterator[str]:
    name = escape(printable(one.stream, _NAME))
    told = f"closed 1 to {one.closed.to_seq}, before {one.closed.before}; last {one.horizon}"
    yield f'<g><title>{name}: {told}</title><text x="{_LEFT}" y="{y}">{name}</text>'
    yield f'<text x="{_LEFT + _WIDTH}" y="{y}" text-anchor="end">{told}</text>'
    x = _LEFT
    for colour, dots in groupby(_painted(one)):
        width = len(list(dots))
        if colour:
            yield (
                f'<rect x="{x}" y="{y + 6}" width="{width}" height="{_BAR}" '
                f'fill="{_COLOURS[colour]}"/>'
            )
        x += width
    if one.closed.to_seq:
        end = _LEFT + _WIDTH * one.closed.to_seq // one.horizon
        yield f'<path d="M{_LEFT} {y + 26}H{end}v-4" fill="none" stroke="#000000"/>'
    yield "</g>"


def _painted(one: StreamReport) -> list[str]:
    """The class of each dot of a lane."""
    dots = [""] * _WIDTH
    spans = {name.value: found for name, found in one.classes.items()}
    spans |= {"untold": one.untold, "duplicate": one.duplicate}
    for name in _COLOURS:
        for span in spans[name]:
            first, last = _dots(span, one.horizon)
            dots[first : last + 1] = [name] * (last - first + 1)
    return dots


def _dots(span: Range, horizon: int) -> tuple[int, int]:
    return _WIDTH * (span.first - 1) // horizon, (_WIDTH * span.last - 1) // horizon


def _rest(report: Report, shown: int, height: int) -> Iterator[str]:
    if len(report.streams) > shown:
        left = len(report.streams) - shown
        yield f'<text x="{_LEFT}" y="{height - 10}">and {left} more streams</text>'
