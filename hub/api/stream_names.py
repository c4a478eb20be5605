"""Which streams the hub knows by name: those it was configured with and those it was told."""

from __future__ import annotations

from collections.abc import Iterable

from hub.storage.reader import LogReader
from veen.control import StreamRecord


class StreamNames:
    def __init__(self, configured: Iterable[StreamRecord], reader: LogReader) -> None:
        self._reader = reader
        self._named = {one.stream_id(): one for one in configured}

    def known(self, stream_id: bytes | None) -> StreamRecord | None:
        """The stream, if it has a name. A name never changes, so one found is kept."""
        if stream_id is None:
            return None
        if stream_id not in self._named:
            self._reload()
        return self._named.get(stream_id)

    def all(self) -> list[StreamRecord]:
        self._reload()
        return sorted(self._named.values(), key=lambda one: one.name)

    def _reload(self) -> None:
        for stream_id, _, record in self._reader.index.streams():
            found = StreamRecord.decode(record)
            if not found.is_nameless():
                self._named.setdefault(stream_id, found)
