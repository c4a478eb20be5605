"""Indexes of logs in memory, written by the code that the follower writes with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from recorder.index import tables
from recorder.index.proofs import check_checkpoint
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from recorder.index.writer import EntryReader, IndexWriter, writing
from support.recorder.query_histories import STREAMS, history
from support.recorder.recorded_log import HUB, READER, RecordedLog
from veen.client.log_head import Pair
from veen.crypto import SigningKey
from veen.digest import h
from veen.hub_identity import key_id, new_identity
from veen.label import stream_id
from veen.limits import Limits
from veen.msg import Msg
from veen.receipt import Receipt
from veen.recorder_checkpoint import log_root

MOST_TOGETHER = 37


def a_log(seed: int, size: int) -> Any:
    """Real messages of a random history; ``plain_items`` is what the oracle reads."""
    items = history(seed, size)
    log = RecordedLog(items)
    leaves = {(entry.stream, entry.seq): entry.leaf_hash.hex() for entry in log.entries}
    log.plain_items = [
        item.plain() | {"leaf_hash": leaves[item.stream, item.seq]} for item in items
    ]
    return log


def pairs_of(log: Any, stream: str) -> list[Pair]:
    places = sorted(seq for name, seq in log.pairs if name == stream)
    result = (log.pairs[stream, seq] for seq in places)
    return [Pair(Msg.decode(raw), Receipt.decode(receipt)) for raw, receipt, _ in result]


class Index:
    """One index of one log."""

    def __init__(self, root: Path, log: Any) -> None:
        self.home = IndexHome(root)
        self.log = log

    @contextmanager
    def writer(self) -> Iterator[IndexWriter]:
        with self.home.locked(), writing(create(self.home, self.log.hub.hub_id)) as writer:
            yield writer

    def fill(self, *documents: Any, seed: int = 0) -> Index:
        """Take in all of the log, streams in any order, and then recorder checkpoints."""
        draw = random.Random(seed)
        with self.writer() as writer:
            for name in draw.sample(STREAMS, len(STREAMS)):
                _append(writer, name, pairs_of(self.log, name), draw)
            for document in documents:
                writer.db.execute(
                    "INSERT INTO checkpoints (checkpoint_id, created_at, document) "
                    "VALUES (?, ?, ?)",
                    (document.checkpoint_id, document.created_at, document.encode()),
                )
            check_checkpoint(writer)
        return self

    def execute(self, statement: str, *given: Any) -> int:
        """Meddle with the tables; how many rows were touched."""
        with tables.connected(self.home.current(), writable=True) as db:
            return db.execute(statement, given).rowcount

    def fetch(self, query: str, *given: Any) -> Any:
        with tables.connected(self.home.current(), writable=False) as db:
            return db.execute(query, given).fetchone()

    def row(self, stream: str) -> Any:
        with tables.connected(self.home.current(), writable=False) as db:
            return next(item for item in tables.streams(db) if item.name == stream)


def _append(writer: IndexWriter, name: str, pairs: list[Pair], draw: random.Random) -> None:
    reader, row = EntryReader([READER], Limits()), writer.stream(name)
    while row.position < len(pairs):
        some = pairs[row.position : row.position + draw.randint(1, MOST_TOGETHER)]
        row = writer.append(row, some, [reader.read(item.msg.encode()) for item in some])


def another_hub() -> Any:
    """Who has the hub's name and not its key."""
    key = SigningKey(h(b"another key"))
    identity = new_identity(HUB.public, 0, "none")
    forged = replace(identity.hub_keys[0], hub_pk=key.public, key_id=key_id(key.public))
    return replace(identity, hub_keys=(forged,))


def read(pairs: list[Pair]) -> list[Any]:
    reader = EntryReader([READER], Limits())
    return [reader.read(pair.msg.encode()) for pair in pairs]


def receipted(pair: Pair, **changes: Any) -> Pair:
    """The same message with another receipt, as signed by the hub."""
    return Pair(pair.msg, replace(pair.receipt, **changes).signed(HUB))


def forged_checkpoint(log: Any, stream: str) -> Any:
    """One that the hub has signed, with a root in it that its stream never had."""
    honest = log.checkpoint
    ends = tuple(
        replace(end, mmr_root=h(b"another root")) if end.stream_id == stream_id(stream) else end
        for end in honest.ends
    )
    own = tuple(
        replace(checkpoint, mmr_root=h(b"another root")).signed(HUB)
        if checkpoint.label_curr == log.label(stream)
        else checkpoint
        for checkpoint in honest.checkpoints
    )
    created_at = honest.created_at + 1
    return replace(
        honest, ends=ends, checkpoints=own, log_root=log_root(ends), created_at=created_at
    ).signed(HUB)
