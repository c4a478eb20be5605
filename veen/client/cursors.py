"""Client cursors of a replay: how far each client had come, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from veen.invariants import NEW_CLIENT, ClientCursor

MAX_CLIENTS: Final = 16_384


class Cursors:
    """The last client_seq of each client, of as many as fit.

    A client not met yet is new when the range began with the label; after one had to be
    forgotten nothing is known of it.
    """

    def __init__(self, *, from_start: bool, most: int = MAX_CLIENTS) -> None:
        self._known: OrderedDict[bytes, ClientCursor] = OrderedDict()
        self._unknown = NEW_CLIENT if from_start else None
        self._most = most

    def of(self, client_id: bytes) -> ClientCursor | None:
        return self._known.get(client_id, self._unknown)

    def put(self, client_id: bytes, cursor: ClientCursor) -> None:
        self._known[client_id] = cursor
        self._known.move_to_end(client_id)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
            self._unknown = None
