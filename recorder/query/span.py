"""Spans: the part of a stream in which a query looks, and what is said of it afterwards."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import NamedTuple

from recorder.query.descriptor import Descriptor
from recorder.query.digest import Searched
from recorder.query.filter import Filter
from veen.errors import Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd


class Span(NamedTuple):
    """Places ``first`` to ``last``, both included; ``last`` is one less when there are none."""

    first: int
    last: int


def span_of(wanted: Filter, last_seq: int, hub_ts_at: Callable[[int], int]) -> Span:
    """The places up to ``last_seq`` whose time passes, in O(log n) looks.

    A hub's time never goes back, so those before are too early and those behind too late.
    """
    places = range(1, last_seq + 1)
    first, last = 1, last_seq
    if wanted.from_ms is not None:
        first = bisect_left(places, wanted.first_second, key=hub_ts_at) + 1
    if wanted.last_second is not None:
        last = bisect_right(places, wanted.last_second, key=hub_ts_at)
    return Span(first, last)


def end_of(stream: str, checkpoint: RecorderCheckpoint) -> StreamEnd:
    found = checkpoint.end(stream)
    if found is None:
        raise Untrusted(f"the checkpoint does not speak of {stream}; take one that does")
    return found


def searched(
    descriptor: Descriptor,
    checkpoint: RecorderCheckpoint,
    spans: Mapping[str, Span],
    unread: Mapping[str, int],
) -> tuple[Searched, ...]:
    """What the digest says of each stream of the scope, in its order."""
    return tuple(
        Searched(
            stream=stream,
            from_seq=spans[stream].first,
            to_seq=spans[stream].last,
            mmr_root=end_of(stream, checkpoint).mmr_root.hex(),
            unread=unread.get(stream, 0),
        )
        for stream in descriptor.scope
    )
