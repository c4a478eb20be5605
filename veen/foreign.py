"""Messages in a log that its reader cannot use, distinguished by their writer.

Any writer of a log can put a message there that no reader opens, or that is not of the log's type.
Such a message is counted, reported and skipped; it must not stop the reading of the others. A
message of a writer whose entries do belong to the log is different: its content must not be
guessed, so the reader stops there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from veen.errors import Undecryptable, VeenError

Refuse = Callable[[int, VeenError], VeenError]
"""Builds the error that ends the reading, from a stream_seq and the cause."""


@dataclass(slots=True)
class Foreign:
    """Tracks unreadable messages by client; ``own`` is the client that writes the log, if known.

    If it is unknown and no message could be read, the reader may lack the key to all of them: then
    the reading ends, too.
    """

    refuse: Refuse
    own: bytes | None = None
    _writers: set[bytes] = field(default_factory=set)
    _unread: dict[bytes, tuple[int, VeenError]] = field(default_factory=dict)
    """The first unusable message of each client."""

    def read(self, client_id: bytes) -> None:
        """Note that an entry of a client was read; raise if an earlier one was unusable."""
        if client_id in self._writers:
            return
        self._writers.add(client_id)
        if client_id in self._unread:
            raise self.refuse(*self._unread[client_id])

    def unread(self, stream_seq: int, client_id: bytes, error: VeenError) -> None:
        """Note an unusable message; raise if its client is a writer of the log."""
        if client_id == self.own or client_id in self._writers:
            raise self.refuse(stream_seq, error)
        self._unread.setdefault(client_id, (stream_seq, error))

    def finish(self) -> None:
        """Raise at the end of the log if the reader may lack the key to all of it."""
        if self.own is not None or self._writers:
            return
        for stream_seq, error in self._unread.values():
            if isinstance(error, Undecryptable):
                raise self.refuse(stream_seq, error)
