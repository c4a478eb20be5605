"""Whether the recorder checkpoints of an archive stand on what the archive holds."""

from __future__ import annotations

from recorder.archive.recorder_push import read_document
from recorder.archive.source import Place
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.label import label, routing_key
from veen.recorder_checkpoint import RecorderCheckpoint


class RecorderCheck:
    """Takes documents in order; ``held`` are the checkpoints of all labels."""

    def __init__(self, hub: HubIdentity, held: set[Place]) -> None:
        self._hub = hub
        self._held = held
        self._last: RecorderCheckpoint | None = None

    def take(self, name: str, raw: bytes) -> None:
        """Refuse a document that is not the hub's, goes back, or speaks of what is not here."""
        found = read_document(name, raw)
        found.verify(self._hub)
        if self._last is not None:
            found.verify_follows(self._last)
        self._last = found
        for place in places(found):
            if place not in self._held:
                raise Untrusted(f"the archive has no checkpoint of its stream at {place[1]}")


def places(document: RecorderCheckpoint) -> list[Place]:
    """Label and size of every checkpoint that a document stands on."""
    routing = routing_key(document.hub_id)
    return [
        (label(routing, end.stream_id, 0), end.last_seq) for end in document.ends if end.last_seq
    ]
