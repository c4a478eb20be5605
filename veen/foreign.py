"""Messages in a log that its reader cannot use, told apart by who wrote them.

Anybody who may write to a log can put a message there that no reader opens, or that is none of
what the log holds. Such a message is counted, named and left out; it must not end the reading of
what others wrote. A message of a writer whose entries belong to the log is another matter: what it
says must not be guessed, so the reader stops there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from veen.errors import Undecryptable, VeenError

Refuse = Callable[[int, VeenError], VeenError]
"""Makes the error that ends the reading, from the stream_seq of a message and what is wrong."""


@dataclass(slots=True)
class Foreign:
    """``own`` is the client that writes the log, where that is known.

    Where it is not known and not one message could be read, a reader that lacks the key cannot be
    told from a log of foreign messages: then the reading ends too.
    """

    refuse: Refuse
    own: bytes | None = None
    _writers: set[bytes] = field(default_factory=set)
    _unread: dict[bytes, tuple[int, VeenError]] = field(default_factory=dict)
    """By client, the first of its messages that could not be used."""

    def read(self, client_id: bytes) -> None:
        """An entry of this client was read; an earlier one that could not be read counts now."""
        if client_id in self._writers:
            return
        self._writers.add(client_id)
        if client_id in self._unread:
            raise self.refuse(*self._unread[client_id])

    def unread(self, stream_seq: int, client_id: bytes, error: VeenError) -> None:
        """A message cannot be used; this raises if it is of a writer of the log."""
        if client_id == self.own or client_id in self._writers:
            raise self.refuse(stream_seq, error)
        self._unread.setdefault(client_id, (stream_seq, error))

    def finish(self) -> None:
        """At the end of the log: whether the reader may lack the key to all of it."""
        if self.own is not None or self._writers:
            return
        for stream_seq, error in self._unread.values():
            if isinstance(error, Undecryptable):
                raise self.refuse(stream_seq, error)
