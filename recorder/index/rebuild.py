"""An index made again from the log, beside the old one, and put in its place at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from recorder.index import tables
from recorder.index.content import Compared, compare
from recorder.index.follower import Follower
from recorder.index.home import Generation, IndexHome
from recorder.index.opener import Opener
from recorder.index.writer import writing
from veen.client.client import Client
from veen.errors import Untrusted

Progress = Callable[[int], None]


class Rebuilt(NamedTuple):
    """How many entries the new index holds; ``compared`` is None when there was no old one."""

    entries: int
    compared: Compared | None


def create(home: IndexHome, hub_id: bytes) -> Generation:
    """The current index; an empty one where there was none. The caller holds the lock."""
    if home.exists():
        return home.current()
    fresh = home.fresh()
    tables.create(fresh, hub_id)
    home.swap(fresh)
    return fresh


def build(
    home: IndexHome,
    client: Client,
    opener: Opener,
    wanted: frozenset[str] | None,
    progress: Progress,
) -> Generation:
    """A new index of all that the hub has by now, imports included, beside the current one."""
    fresh = home.fresh()
    tables.create(fresh, client.meet().hub.hub_id)
    with writing(fresh) as writer:
        follower = Follower(client, writer, opener, wanted)
        done = found = follower.round()
        ends = {row.stream_no: row.head_seq for row in writer.streams()}
        # Up to where the hub was when it began: it may never stand still.
        while found and any(row.position < ends.get(row.stream_no, 0) for row in writer.streams()):
            progress(done)
            found = follower.round()
            done += found
        if follower.import_trouble is not None:
            # Whoever follows goes on without such a stream; an index that is made again does not.
            raise Untrusted(follower.import_trouble)
    return fresh


def rebuild(
    home: IndexHome,
    client: Client,
    opener: Opener,
    wanted: frozenset[str] | None,
    progress: Progress,
) -> Rebuilt:
    """Build, compare with the old one, swap. The caller holds the lock."""
    fresh = build(home, client, opener, wanted, progress)
    compared = compare(home.current(), fresh) if home.exists() else None
    home.swap(fresh)
    home.sweep()
    with tables.connected(fresh, writable=False) as db:
        entries = sum(row.position for row in tables.streams(db))
    return Rebuilt(entries, compared)


def verify(
    home: IndexHome,
    client: Client,
    opener: Opener,
    wanted: frozenset[str] | None,
    progress: Progress,
) -> Compared:
    """Whether the index says what the log says: it is built once more, and the two compared.

    The caller holds the lock; the index stays as it is.
    """
    current = home.current()
    try:
        return compare(current, build(home, client, opener, wanted, progress))
    finally:
        home.sweep()
