"""The ledger of a bridge: what it has exported, each entry chained to the one before.

Its tail travels with every carrier, so that the other zone learns from the next one that a carrier
was lost, with nothing going back (AGB0 4.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bridge.bundle import Header
from veen.digest import ht
from veen.errors import Malformed, Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.schema import Bytes32, Version
from veen.wire import WireArray, WireMap

TAIL: Final = 64
"""How many entries travel; those before them have travelled often enough."""
NO_ENTRY: Final = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry(WireArray):
    """One carrier; without bundle_id it is a heartbeat, which carries a checkpoint alone."""

    n: int
    prev: Bytes32
    bundle_id: Bytes32 | None
    hub_id: Bytes32
    stream: str
    from_seq: int
    to_seq: int
    checkpoint_id: Bytes32
    created_at: int
    """When the checkpoint was made."""

    def rule(self) -> None:
        if (self.n == 1) != (self.prev == NO_ENTRY) or not self.n:
            raise Malformed("only the first entry of a ledger has none before it")
        empty = (self.stream, self.from_seq, self.to_seq) == ("", 0, 0)
        if empty != (self.bundle_id is None):
            raise Malformed("an entry names a bundle and its range, or neither")

    def entry_hash(self) -> bytes:
        return ht("veen/agb0-ledger", self.encode())

    def is_of_bundle(self, header: Header) -> bool:
        mine = (self.bundle_id, self.hub_id, self.stream, self.from_seq, self.to_seq)
        return (*mine, self.checkpoint_id, self.created_at) == (
            header.bundle_id,
            header.source_hub_id,
            header.export_stream,
            header.export_seq_from,
            header.export_seq_to,
            header.export_checkpoint.checkpoint_id,
            header.export_checkpoint.created_at,
        )

    def is_of_heartbeat(self, checkpoint: RecorderCheckpoint) -> bool:
        mine = (self.bundle_id, self.hub_id, self.checkpoint_id, self.created_at)
        due = (None, checkpoint.hub_id, checkpoint.checkpoint_id, checkpoint.created_at)
        return mine == due


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger(WireMap):
    """The newest entries, oldest first; the last is that of the carrier it lies in."""

    ver: Version = 1
    bridge_id: Bytes32
    tail: tuple[LedgerEntry, ...] = ()

    def rule(self) -> None:
        if len(self.tail) > TAIL:
            raise Malformed(f"a ledger's tail of {len(self.tail)} entries")
        for old, new in pairwise(self.tail):
            if new.n != old.n + 1 or new.prev != old.entry_hash():
                raise Malformed(f"entry {new.n} of the ledger does not follow entry {old.n}")

    def with_bundle(self, header: Header) -> Ledger:
        """The ledger with one more entry, for a bundle that has its id."""
        if header.bundle_id is None:
            raise Malformed("a bundle without bundle_id cannot be entered")
        return self._with(
            header.bundle_id,
            header.export_stream,
            header.export_seq_from,
            header.export_seq_to,
            header.export_checkpoint,
        )

    def with_heartbeat(self, checkpoint: RecorderCheckpoint) -> Ledger:
        return self._with(None, "", 0, 0, checkpoint)

    def after(self, known: LedgerEntry) -> tuple[LedgerEntry, ...]:
        """The entries behind one that is known, the newest known of this bridge.

        Those between it and the first of the answer, if any, are too old to be told here. Another
        entry in the place of the known one, or a ledger that ends before it, is Untrusted.
        """
        for entry in self.tail:
            is_other = entry.n == known.n and entry != known
            is_cut_off = entry.n == known.n + 1 and entry.prev != known.entry_hash()
            if is_other or is_cut_off:
                raise Untrusted(f"the ledger tells entry {known.n} otherwise than before")
        if not self.tail or self.tail[-1].n < known.n:
            raise Untrusted(f"the ledger ends before entry {known.n}, which is known")
        return tuple(entry for entry in self.tail if entry.n > known.n)

    def _with(
        self, bundle_id: bytes | None, stream: str, first: int, last: int, at: RecorderCheckpoint
    ) -> Ledger:
        entry = LedgerEntry(
            n=self.tail[-1].n + 1 if self.tail else 1,
            prev=self.tail[-1].entry_hash() if self.tail else NO_ENTRY,
            bundle_id=bundle_id,
            hub_id=at.hub_id,
            stream=stream,
            from_seq=first,
            to_seq=last,
            checkpoint_id=at.checkpoint_id,
            created_at=at.created_at,
        )
        return Ledger(bridge_id=self.bridge_id, tail=(*self.tail, entry)[-TAIL:])
