"""Client cursors and rate buckets: the index behind a bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, TypeVar

from hub.storage.index import ClientRow, Index
from veen.invariants import NEW_CLIENT, ClientCursor
from veen.rate import Bucket

_REMEMBERED: Final = 65_536

K = TypeVar("K")
V = TypeVar("V")
ClientKey = tuple[int, bytes]


class Cursors:
    """Where each (label, client) and each capability stands after the last commit."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._clients: OrderedDict[ClientKey, ClientRow] = OrderedDict()
        self._buckets: OrderedDict[bytes, Bucket | None] = OrderedDict()
        self._next_client_no = index.next_client_no()

    def client(self, label_no: int, client_id: bytes) -> ClientCursor:
        return self._row(label_no, client_id).cursor

    def client_no(self, label_no: int, client_id: bytes) -> int:
        return self._row(label_no, client_id).client_no

    def seq_of(self, label_no: int, client_id: bytes, client_seq: int) -> int | None:
        """The stream_seq of an earlier message of a client."""
        return self._index.seq_of(self.client_no(label_no, client_id), client_seq)

    def bucket(self, auth_ref: bytes) -> Bucket | None:
        if auth_ref not in self._buckets:
            _remember(self._buckets, auth_ref, self._index.bucket(auth_ref))
        return self._buckets[auth_ref]

    def store(
        self, clients: Mapping[ClientKey, ClientCursor], buckets: Mapping[bytes, Bucket]
    ) -> None:
        """Move cursors, inside a transaction of the index."""
        rows = []
        for (label_no, client_id), cursor in clients.items():
            client_no = self.client_no(label_no, client_id)
            rows.append((client_no, label_no, client_id, cursor.client_seq, cursor.prev_ack))
            _remember(self._clients, (label_no, client_id), ClientRow(client_no, cursor))
        self._index.put_clients(rows)
        self._index.put_buckets([(ref, left.tokens, left.at) for ref, left in buckets.items()])
        for ref, left in buckets.items():
            _remember(self._buckets, ref, left)

    def forget(self) -> None:
        """Drop what memory holds after a transaction that did not happen."""
        self._clients.clear()
        self._buckets.clear()

    def _row(self, label_no: int, client_id: bytes) -> ClientRow:
        key = (label_no, client_id)
        found = self._clients.get(key)
        if found is not None:
            return found
        found = self._index.client(label_no, client_id)
        if found is None:
            found = ClientRow(self._next_client_no, NEW_CLIENT)
            self._next_client_no += 1
        _remember(self._clients, key, found)
        return found


def _remember(cache: OrderedDict[K, V], key: K, value: V) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > _REMEMBERED:
        cache.popitem(last=False)
