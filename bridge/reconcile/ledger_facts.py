"""What the ledger of a carrier tells: its entries, and that their bundles were exported."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.carrier.ledger import Ledger, LedgerEntry
from bridge.reconcile.facts import Entry, Export


def of_ledger(ledger: Ledger) -> Iterator[Entry | Export]:
    for one in ledger.tail:
        yield from of_entry(ledger.bridge_id, one)


def of_entry(bridge_id: bytes, one: LedgerEntry) -> Iterator[Entry | Export]:
    yield Entry(bridge_id, one.n, one.prev, one.entry_hash(), one.bundle_id or b"")
    if one.bundle_id is not None:
        yield Export(one.hub_id, one.stream, one.from_seq, one.to_seq, one.bundle_id, "ledger")
