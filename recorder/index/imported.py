"""Imported events in the index, under the place that they have at their origin (Query API 9.1).

So a query that was asked in the other zone can be run again here: its scope, roots and receipts are
those of the origin's hub. What an import stream holds of a bundle counts only when all of it is
there, and a stream of the origin is indexed up to the first event that is not here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from recorder.index.reading import Reading
from recorder.index.tables import transaction
from recorder.index.writer import IndexWriter
from veen.client.client import Client
from veen.client.pair import Pair
from veen.errors import Malformed, Undecryptable, Untrusted
from veen.hub_identity import HubIdentity
from veen.import_event import ImportedEvent, NotImported, Visibility, read_imported
from veen.msg import Msg
from veen.receipt import Receipt
from veen.record_event import NotAnEvent

EXCLUDED: Final = "EXCLUDED"
"""The fault of an event that this zone's policy keeps out."""
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Origin:
    """An event at its origin's place; ``at`` is where it stands in the import stream."""

    at: int
    event: ImportedEvent
    receipt: Receipt

    @property
    def key(self) -> tuple[bytes, str]:
        return self.event.source_hub_id, self.event.origin_stream


@dataclass(frozen=True, slots=True)
class OriginPair:
    """As the writer takes a pair; an event that was kept out has no message."""

    msg: Msg | None
    receipt: Receipt


@dataclass(slots=True)
class Waiting:
    """Events of one origin's stream that are here, by number, beyond those that are indexed."""

    events: dict[int, Origin] = field(default_factory=dict)

    def following(self, position: int) -> Iterator[Origin]:
        while position + 1 in self.events:
            position += 1
            yield self.events.pop(position)


class ImportedFollower:
    """``hubs`` are the pinned identities of the origins' hubs; ``targets`` the import streams."""

    def __init__(
        self,
        client: Client,
        writer: IndexWriter,
        hubs: Mapping[bytes, HubIdentity],
        targets: frozenset[str],
    ) -> None:
        self._client = client
        self._writer = writer
        self._hubs = hubs
        self._targets = targets

    def round(self) -> int:
        """One look at every import stream; how many events were indexed."""
        return sum(self.catch_up(target) for target in sorted(self._targets))

    def catch_up(self, target: str) -> int:
        """Index what one import stream has beyond our place.

        Everything is read again from the first event that is not indexed, so that nothing
        needs to be kept of what waits for a gap to close or for the rest of its bundle.
        """
        start = self._cursor(target)
        seen: Visibility[Origin] = Visibility()
        waiting: dict[tuple[bytes, str], Waiting] = {}
        last, count = start, 0
        for pair in self._client.read(target, from_seq=start + 1):
            last = pair.receipt.stream_seq
            event = self._event(target, pair)
            if event is None:
                continue
            for one in seen.add(event, Origin(last, event, event.receipt())):
                held = waiting.setdefault(one.key, Waiting())
                held.events[one.receipt.stream_seq] = one
                if len(held.events) >= _BATCH:
                    count += self._index(one.key, held)
        count += sum(self._index(key, held) for key, held in waiting.items())
        left = [one.at for held in waiting.values() for one in held.events.values()]
        left += [one.at for one in seen.held_back()]
        self._note(target, min(left, default=last + 1) - 1)
        return count

    def _index(self, key: tuple[bytes, str], held: Waiting) -> int:
        hub_id, name = key
        row = self._writer.stream(name, hub_id)
        for seq in [one for one in held.events if one <= row.position]:
            # Read again after a stop; the place was filled then.
            del held.events[seq]
        found = list(held.following(row.position))
        for start in range(0, len(found), _BATCH):
            some = found[start : start + _BATCH]
            pairs = [OriginPair(one.event.msg(), one.receipt) for one in some]
            row = self._writer.append(row, pairs, [_reading(one.event) for one in some])
        with transaction(self._writer.db):
            # Its end is nowhere told here; what came is all there is to keep up with.
            self._writer.update(row._replace(head_seq=row.position, head_ts=row.last_ts))
        return len(found)

    def _event(self, target: str, pair: Pair) -> ImportedEvent | None:
        """The event, its origin's signatures verified; None for a message that is none."""
        try:
            opened = self._client.open_payload(pair.msg)
            event = read_imported(opened.header.schema, opened.body, pair.msg.client_id)
        except (NotImported, Undecryptable, Malformed):
            return None
        hub = self._hubs.get(event.source_hub_id)
        if hub is None:
            raise Untrusted(
                f"{target}, stream_seq {pair.receipt.stream_seq}: hub "
                f"{event.source_hub_id.hex()} is not pinned; add it to the trust store and run "
                "veen recorder index imports again"
            )
        event.verify(hub)
        return event

    def _cursor(self, target: str) -> int:
        found = self._writer.db.execute(
            "SELECT value FROM meta WHERE key = ?", (f"imported {target}",)
        ).fetchone()
        return int(found[0]) if found else 0

    def _note(self, target: str, seq: int) -> None:
        with transaction(self._writer.db):
            self._writer.note(f"imported {target}", seq)


def _reading(event: ImportedEvent) -> Reading:
    if event.excluded is not None:
        return Reading(EXCLUDED)
    try:
        found = event.origin_event()
    except NotAnEvent as error:
        return Reading(error.fault.name)
    return Reading(
        None,
        found.subject_id,
        found.principal_id,
        found.event_type,
        found.event_time,
        found.origin,
        bytes(found.payload),
        event.body_key,
    )
