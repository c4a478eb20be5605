"""Imported events that an index does not hold yet: behind a gap, or not taken up so far.

An index holds a stream of the other zone up to the first event that is not here. So what is missing
for a replay is told exactly only by whoever reads the import streams beyond it (Query API 9.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial

from recorder.index import imports, tables
from recorder.index.home import IndexHome
from recorder.index.snapshot import snapshot
from veen.client.client import Client
from veen.client.errors import HubRefused
from veen.client.head import is_missing
from veen.client.pair import Pair
from veen.errors import Unopenable, Untrusted, VeenError
from veen.foreign import Foreign
from veen.hub_identity import HubIdentity
from veen.import_event import (
    ImportedEvent,
    ImportFault,
    NotImported,
    Visibility,
    read_imported,
)
from veen.receipt import Receipt

Beyond = Mapping[tuple[bytes, str], Mapping[int, Receipt]]
"""By hub and stream: the receipts of events that are here, verified, by their place."""


def read_beyond(reader: Client, home: IndexHome) -> Beyond:
    """What the import streams of an index have beyond its place in them.

    Only whole bundles count. Untrusted where the reader cannot open what stands there.
    """
    wanted = imports.read(home)
    hubs = {one.hub_id: one for one in wanted.hubs}
    with snapshot(home) as held:
        noted = tables.meta(held.db)
    found: dict[tuple[bytes, str], dict[int, Receipt]] = defaultdict(dict)
    for target in wanted.streams:
        for event in _seen(reader, target, int(noted.get(f"imported {target}", 0)), hubs):
            receipt = event.receipt()
            found[event.source_hub_id, event.origin_stream][receipt.stream_seq] = receipt
    return found


def _seen(
    reader: Client, target: str, after: int, hubs: Mapping[bytes, HubIdentity]
) -> Iterator[ImportedEvent]:
    seen: Visibility[ImportedEvent] = Visibility()
    foreign = Foreign(partial(_unopened, target))
    try:
        for pair in reader.read(target, from_seq=after + 1):
            event = _event(reader, pair, foreign)
            if event is not None:
                _verify(event, target, hubs)
                yield from seen.add(event, event)
        foreign.finish()
    except HubRefused as error:
        # A stream that nothing was imported to yet.
        if not is_missing(error):
            raise


def _event(reader: Client, pair: Pair, foreign: Foreign) -> ImportedEvent | None:
    """The event of a message; None for one that is none, or that others have sealed."""
    client_id = pair.msg.client_id
    try:
        opened = reader.open_payload(pair.msg)
        event = read_imported(opened.header.schema, opened.body, client_id)
    except Unopenable as error:
        foreign.unread(pair.receipt.stream_seq, client_id, error)
        return None
    except NotImported:
        return None
    foreign.read(client_id)
    return event


def _unopened(target: str, seq: int, error: VeenError) -> VeenError:
    found = Untrusted(f"{target}, stream_seq {seq}: {ImportFault.UNOPENED.value}")
    found.__cause__ = error
    return found


def _verify(event: ImportedEvent, target: str, hubs: Mapping[bytes, HubIdentity]) -> None:
    hub = hubs.get(event.source_hub_id)
    if hub is None:
        raise Untrusted(f"hub {event.source_hub_id.hex()} is not pinned for {target}")
    event.verify(hub)
