"""Which streams can be queried: those of the configuration, and those of our hub in the index.

Streams of other hubs are in the index too, as far as their events were imported. No checkpoint of
ours speaks of them: they serve to run a query of the other zone again.
"""

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
                own = {one.name for one in held.streams() if one.hub_id == held.hub_id}
                return self._configured | own
        except NoIndex:
            return self._configured
