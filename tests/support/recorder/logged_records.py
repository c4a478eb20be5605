"""What a logging handler has put into the outbox of its emitter."""

from __future__ import annotations

from recorder.emit.emitter import Emitter
from recorder.emit.log_handler import LogMapping
from veen.events import RecordEvent

MAPPING = LogMapping(subject_id="service:shop", origin="shop")


def stored(emitter: Emitter) -> list[RecordEvent]:
    outbox = emitter._client._outbox
    rows = outbox._rows("SELECT id FROM events ORDER BY id")
    return [RecordEvent.decode(outbox.message(item).body) for (item,) in rows]
