"""The hub of a directory, seen by whoever reads beside it: how far it has come, and if it runs."""

from __future__ import annotations

import sqlite3
from types import TracebackType
from typing import Self

from hub.storage.datadir import DataDir, is_held
from hub.storage.index import Index


class Writer:
    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir
        self._index: Index | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def acknowledged(self, label: bytes) -> int:
        """The last stream_seq in the index, without which no receipt is given; 0 if it is not to
        be read."""
        try:
            if self._index is None:
                self._index = Index(self._datadir.index, writable=False)
            found = self._index.label(label)
        except sqlite3.DatabaseError:
            return 0
        return found.head_seq if found else 0

    def is_running(self) -> bool:
        return is_held(self._datadir)
