"""The MMR nodes of a label in a file, each at its position (derived state)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Self

from veen import mmr
from veen.system import durable

NODE_BYTES: Final = 32


class NodeFile:
    """The nodes for proofs in O(log n) reads; only the sequencer writes."""

    def __init__(self, path: Path, flags: int) -> None:
        self._path = path
        self._flags = flags
        self._handle: int | None = None

    @property
    def _fd(self) -> int:
        """The open file; it is opened again after it was closed."""
        if self._handle is None:
            self._handle = durable.open_file(self._path, self._flags)
        return self._handle

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    @classmethod
    def for_writing(cls, path: Path) -> NodeFile:
        """A file that is created if needed; its directory entry is synced first."""
        return cls(path, os.O_RDWR | os.O_CREAT)

    @classmethod
    def for_reading(cls, path: Path) -> NodeFile:
        return cls(path, os.O_RDONLY)

    def node(self, height: int, index: int) -> bytes:
        offset = mmr.position(height, index) * NODE_BYTES
        node = os.pread(self._fd, NODE_BYTES, offset)
        if len(node) != NODE_BYTES:
            raise LookupError(f"node ({height}, {index}) is not in the node file")
        return node

    def read(self, position: int, count: int) -> bytes:
        """Consecutive nodes from a position on, as many of them as there are."""
        return os.pread(self._fd, count * NODE_BYTES, position * NODE_BYTES)

    def write_from(self, seq: int, nodes: bytes) -> None:
        """Write the nodes that the leaves from ``seq`` on complete."""
        durable.write_at(self._fd, nodes, mmr.position(0, seq - 1) * NODE_BYTES)

    def sync(self) -> None:
        durable.sync(self._fd)

    def size(self) -> int:
        """The number of nodes in the file."""
        return os.fstat(self._fd).st_size // NODE_BYTES

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
