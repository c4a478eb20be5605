"""What tasks of a query send back, as it travels and is sorted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recorder.query.aggregate import Cells
from recorder.query.entry import Entry
from spark_jobs.query_nodes import Top


class Tally(NamedTuple):
    """Of one question in one chunk: messages before its time and up to its end, messages in its
    time that are no events, and events that match.
    """

    before: int
    upto: int
    unread: int
    matched: int


class Facts(NamedTuple):
    """What a chunk is, whatever matches: ``tops`` are the nodes over each of its cuts, ``groups``
    is how many partial groups it gave.
    """

    number: int
    first_ts: int
    last_ts: int
    tops: tuple[tuple[Top, ...], ...]
    tallies: Mapping[int, Tally]
    groups: int


class OrderKey(NamedTuple):
    """The order of rows, question by question."""

    question: int
    hub_ts: int
    stream: bytes
    seq: int


class Shown(NamedTuple):
    """What a witness is made of; ``path`` ends below the top of the chunk's own node."""

    entry: Entry
    msg: bytes
    receipt: bytes
    body_key: bytes
    path: tuple[bytes, ...]


class Taken(NamedTuple):
    """An event that matches: its row where it gives one, and what shows it where that is asked."""

    key: OrderKey
    row: bytes | None
    shown: Shown | None


class Grouped(NamedTuple):
    """What a chunk adds to one group of an aggregate."""

    group: tuple[int, bytes]
    cells: Cells


class Refused(NamedTuple):
    """Why nothing at all can be answered."""

    told: str


Found = Facts | Taken | Grouped | Refused
