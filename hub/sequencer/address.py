"""The address of the sequencer's socket, however long the path of the data directory is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hub.storage.datadir import DataDir


@contextmanager
def socket_address(datadir: DataDir) -> Iterator[str]:
    """A Unix socket's address may have 107 bytes; through a descriptor it is always short."""
    handle = os.open(datadir.run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{datadir.socket.name}"
    finally:
        os.close(handle)
