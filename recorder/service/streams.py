"""Which streams can be queried: those of the configuration, and those in the index."""

from __future__ import annotations

from recorder.index.home import IndexHome, NoIndex
from recorder.index.snapshot import snapshot
from recorder.settings import Settings


class KnownStreams:
    def __init__(self, settings: Settings, index: IndexHome) -> None:
        self._configured = frozenset(one.name for one in settings.streams.streams)
        self._index = index

    def names(self) -> frozenset[str]:
        try:
            with snapshot(self._index) as held:
                return self._configured | {one.name for one in held.streams()}
        except NoIndex:
            return self._configured
