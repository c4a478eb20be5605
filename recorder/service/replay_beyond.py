"""Imported events that an index does not hold yet: behind a gap, or not taken up so far.

An index holds a stream of the other zone up to the first event that is not here. So what is missing
for a replay is told exactly only by whoever reads the import streams beyond it (Query API 9.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from recorder.index import imports, tables
from recorder.index.home import IndexHome
from recorder.index.snapshot import snapshot
from veen.client.client import Client
from veen.client.errors import HubRefused
from veen.client.head import is_missing
from veen.client.pair import Pair
from veen.errors import Malformed, Undecryptable, Untrusted
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
    try:
        for pair in reader.read(target, from_seq=after + 1):
            event = _event(reader, target, pair, hubs)
            if event is not None:
                yield from seen.add(event, event)
    except HubRefused as error:
        # A stream that nothing was imported to yet.
        if not is_missing(error):
            raise


def _event(
    reader: Client, target: str, pair: Pair, hubs: Mapping[bytes, HubIdentity]
) -> ImportedEvent | None:
    """The event, its origin's signatures verified; None for a message that is none."""
    try:
        opened = reader.open_payload(pair.msg)
        event = read_imported(opened.header.schema, opened.body, pair.msg.client_id)
    except Undecryptable as error:
        told = f"{target}, stream_seq {pair.receipt.stream_seq}: {ImportFault.UNOPENED.value}"
        raise Untrusted(told) from error
    except (NotImported, Malformed):
        return None
    hub = hubs.get(event.source_hub_id)
    if hub is None:
        raise Untrusted(f"hub {event.source_hub_id.hex()} is not pinned for {target}")
    event.verify(hub)
    return event
