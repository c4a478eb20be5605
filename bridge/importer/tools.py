"""What an import works with, put together once by whoever starts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.carrier.watch import Watch, prefixed, unwatched
from bridge.importer.airlock import Airlock
from bridge.importer.kept_checkpoints import KeptCheckpoints
from bridge.importer.ledger import ImportLedger
from bridge.importer.room import bytes_below
from bridge.importer.trail import Trail
from bridge.printable import printable
from bridge.settings_import import ImportSettings
from bridge.stream_map import StreamMap
from bridge.trust import TrustStore
from bridge.trust_changes import Change
from veen.client.client import Client

_ENTRY_BYTES: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """``now`` is read once in a run. ``recipient`` is the key of whoever reads what is imported.

    ``accepted`` are the bundles whose gap was accepted, by the beginning of their id in hex, and
    ``reason`` is why. In the same way ``only`` are those that may go in, where not all may, and
    ``rejected`` those that must not. ``changes`` are those of ``trust`` that people have entered.
    """

    airlock: Airlock
    ledger: ImportLedger
    trail: Trail
    bridge: Client
    trust: TrustStore
    changes: Sequence[Change]
    streams: StreamMap
    settings: ImportSettings
    privates: Sequence[bytes] = field(repr=False)
    recipient: bytes
    checkpoints: KeptCheckpoints
    operator: str
    now: int
    random: Callable[[int], bytes]
    watch: Watch = unwatched
    accepted: Sequence[str] = ()
    only: Sequence[str] | None = None
    rejected: Sequence[str] = ()
    reason: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    """Bytes below folders of the airlock, measured once in a run and counted from then on."""

    def quarantine_bytes(self) -> int:
        if "quarantine" not in self.usage:
            self.usage["quarantine"] = bytes_below(self.airlock.root / "quarantine")
        return self.usage["quarantine"]

    def quarantine_entries(self) -> int:
        if "entries" not in self.usage:
            self.usage["entries"] = sum(1 for _ in self.airlock.quarantine("").iterdir())
        return self.usage["entries"]

    def count_quarantined(self, size: int) -> None:
        """Whatever comes into quarantine takes a directory and a block at least."""
        self.usage["quarantine"] = self.quarantine_bytes() + size + _ENTRY_BYTES
        self.usage["entries"] = self.quarantine_entries() + 1

    def watch_of(self, name: str) -> Watch:
        """Sees the work on the carrier of that name, which may come from a medium."""
        return prefixed(self.watch, printable(name))

    def accepts_gap(self, bundle_id: bytes) -> bool:
        return _is_named(bundle_id, self.accepted)

    def lets_in(self, bundle_id: bytes) -> bool:
        return self.only is None or _is_named(bundle_id, self.only)

    def names(self, bundle_id: bytes) -> bool:
        """Whether it was asked for by name."""
        return self.only is not None and _is_named(bundle_id, self.only)

    def rejects(self, bundle_id: bytes) -> bool:
        return _is_named(bundle_id, self.rejected)


def _is_named(bundle_id: bytes, beginnings: Sequence[str]) -> bool:
    return any(bundle_id.hex().startswith(one) for one in beginnings)
