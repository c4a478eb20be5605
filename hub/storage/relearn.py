"""The index of a log, learnt again from its entries (spec 12, repairability)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hub.registry import Registry
from hub.storage.control_records import learn_control
from hub.storage.cursors import Cursors
from hub.storage.index import ChunkRow, EntryRow, Index, leaf_key
from hub.storage.logged import Logged
from veen.captoken import CapToken
from veen.control import ControlRecord, StreamRecord
from veen.invariants import ClientCursor, Grant
from veen.label import EpochLabels, routing_key
from veen.limits import Limits
from veen.rate import Bucket


class Use(NamedTuple):
    """One message under a capability with a rate."""

    auth_ref: bytes
    hub_ts: int
    label_no: int
    seq: int


class Origin(NamedTuple):
    """The stream of a label, and since when the hub has known it."""

    labels: EpochLabels
    epoch: int
    since: int


class Relearner:
    """Feeds an empty index. Labels come one after another, the control label first."""

    def __init__(
        self, index: Index, hub_id: bytes, limits: Limits, streams: Iterable[StreamRecord]
    ) -> None:
        self.index = index
        self.cursors = Cursors(index)
        self._logged = Registry(routing_key(hub_id), limits.max_epoch_skew_sec)
        self._known = Registry(routing_key(hub_id), limits.max_epoch_skew_sec)
        self._since: dict[bytes, int] = {}
        self._tokens: dict[bytes, tuple[CapToken, int]] = {}
        # A database without a name is a temporary file: buckets span all labels, and the uses of
        # each capability must be put in the order of hub time without holding them in memory.
        self._uses = sqlite3.connect("", isolation_level=None)
        self._uses.execute("CREATE TABLE uses (auth_ref, hub_ts, label_no, seq)")
        for stream in streams:
            self._know(stream, 0)

    def begin(self, label: bytes, first_ts: int) -> int:
        """The number of a new label."""
        origin = self.origin(label, first_ts)
        stream_id = origin.labels.stream_id if origin else None
        epoch = origin.epoch if origin else 0
        with self.index.transaction():
            return self.index.add_label(label, stream_id, epoch, first_ts)

    def origin(self, label: bytes, first_ts: int) -> Origin | None:
        routed = self._known.route(label, first_ts)
        if routed is None:
            return None
        labels = self._known.labels_of(routed.stream)
        return Origin(labels, routed.epoch, self._since[labels.stream_id])

    def grant(self, auth_ref: bytes, hub_ts: int) -> Grant | None:
        """A capability with a full bucket: rates are told by ``fold_buckets``."""
        found = self._tokens.get(auth_ref)
        if found is None:
            return None
        token, issued_at = found
        rate = token.allow.rate
        return Grant(token, issued_at, Bucket.full(rate, hub_ts) if rate else Bucket(0, hub_ts))

    def take(self, label_no: int, chunk_start: int, batch: list[Logged]) -> None:
        """The entries of one chunk, in order."""
        if not batch:
            return
        rows, clients, uses = [], {}, []
        for one in batch:
            client_no = self.cursors.client_no(label_no, one.client_id)
            rows.append(
                EntryRow(
                    label_no, one.seq, chunk_start, one.at, one.hub_ts,
                    client_no, one.client_seq, leaf_key(one.leaf_hash),
                )
            )  # fmt: skip
            clients[label_no, one.client_id] = ClientCursor(one.client_seq, one.prev_ack)
            if one.auth_ref in self._tokens and self._tokens[one.auth_ref][0].allow.rate:
                uses.append(Use(one.auth_ref, one.hub_ts, label_no, one.seq))
        with self.index.transaction():
            self.index.add_entries(rows)
            self.cursors.store(clients, {})
            self.index.move_head(label_no, batch[-1].seq, batch[-1].hub_ts)
        self._uses.executemany("INSERT INTO uses VALUES (?, ?, ?, ?)", uses)

    def learn(self, record: ControlRecord, seq: int, hub_ts: int) -> None:
        """A record of the control log."""
        with self.index.transaction():
            learn_control(self.index, self._logged, record, seq, hub_ts)
        token = record.token()
        if token is not None:
            self._tokens.setdefault(token.auth_ref(), (token, hub_ts))
        for stream in record.streams():
            self._know(stream, hub_ts)

    def seal(self, row: ChunkRow) -> None:
        with self.index.transaction():
            self.index.seal(row)

    def add_checkpoints(self, label_no: int, uptos: Iterable[int]) -> None:
        with self.index.transaction():
            for upto in uptos:
                self.index.add_checkpoint(label_no, upto)

    def fold_buckets(self) -> Iterator[Use]:
        """Debit every use in the order of hub time; yields those beyond what the rate allows."""
        left: dict[bytes, Bucket] = {}
        for row in self._uses.execute("SELECT * FROM uses ORDER BY hub_ts, label_no, seq"):
            use = Use(*row)
            token, issued_at = self._tokens[use.auth_ref]
            rate = token.allow.rate
            if rate is None:
                continue
            bucket = left.get(use.auth_ref) or Bucket.full(rate, issued_at)
            debited = bucket.refilled(rate, use.hub_ts).debited()
            if debited is None:
                yield use
            else:
                left[use.auth_ref] = debited
        with self.index.transaction():
            self.index.put_buckets([(ref, one.tokens, one.at) for ref, one in left.items()])

    def close(self) -> None:
        self._uses.close()

    def _know(self, stream: StreamRecord, hub_ts: int) -> None:
        if self._known.add(stream):
            self._since.setdefault(stream.stream_id(), hub_ts)
