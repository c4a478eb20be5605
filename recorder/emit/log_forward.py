"""Log records of forked processes, forwarded to the process that holds the outbox.

A client directory belongs to one process. After ``fork()`` the child has neither the threads of the
handler nor the right to its outbox, so what it logs goes through a socket to the parent, which
records it. Messages are whole or absent (SOCK_SEQPACKET), and sent when ``send`` returns.
"""

from __future__ import annotations

import errno
import json
import select
import socket
from dataclasses import asdict
from typing import Final, NamedTuple

from recorder.emit.observation import Observation
from veen.errors import VeenError

_BUFFER_BYTES: Final = 4 << 20
_MESSAGE_BYTES: Final = 8 << 20


class Forwarded(NamedTuple):
    """``dropped`` is how many records the sender could not forward before this one."""

    record: Observation | None
    dropped: int


class TooLarge(Exception):
    """A record that no message takes."""


class ParentGone(VeenError):
    """The process that holds the outbox has ended."""


class Forwarding:
    """One end for the parent, one that all children share; made before the first fork."""

    def __init__(self) -> None:
        self._parent, self._child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)

    def send(self, record: Observation | None, dropped: int, wait_sec: float) -> bool:
        """In a child: whether the parent will read it; False where there is no room."""
        document = {"record": None if record is None else asdict(record), "dropped": dropped}
        raw = json.dumps(document).encode()
        self._child.settimeout(wait_sec)
        try:
            self._child.send(raw)
        except TimeoutError:
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise TooLarge from error
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                return False
            raise ParentGone(
                "log records of a forked process are not recorded: the process that made the "
                "handler has ended; make the handler after the fork"
            ) from error
        return True

    def receive(self, wait_sec: float) -> Forwarded | None:
        """In the parent: the next one, or None if there is none for a while."""
        if not select.select([self._parent], [], [], wait_sec)[0]:
            return None
        raw = self._parent.recv(_MESSAGE_BYTES)
        if not raw:
            return None
        document = json.loads(raw)
        record = document["record"]
        return Forwarded(Observation(**record) if record else None, document["dropped"])

    def in_child(self) -> None:
        """After a fork, in the child: with the parent's end open, nobody would see it close."""
        self._parent.close()

    def close(self) -> None:
        self._parent.close()
        self._child.close()
