"""The context of an import: everything it works with, and the outbox of its audit entries.

An audit entry is written exactly once, through any crash (AGB0 4.6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.audit_log import AuditEvent, AuditWriter
from bridge.errors import printable
from bridge.importer.checkpoints import SourceCheckpoints
from bridge.importer.directory import ImportDirectory
from bridge.importer.ledger import ImportLedger
from bridge.importer.staging import bytes_below
from bridge.settings import ImportSettings
from bridge.stream_map import BridgeStreamMap
from bridge.trust import TrustChange, TrustStore
from veen.client.client import Client
from veen.client.outbox import Note
from veen.events import RECORD_SCHEMA
from veen.system.environment import Watch, no_progress_watch, prefixed

_LAST: Final = "import.audit"
_ENTRY_BYTES: Final = 8192


class AuditOutbox:
    """Writes the audit log exactly once. Only one importer writes it at a time, so that the last
    token says what was written.
    """

    def __init__(self, client: Client, writer: AuditWriter, stream: str, recipient: bytes) -> None:
        self._client = client
        self._writer = writer
        self._stream = stream
        self._recipient = recipient

    @property
    def author(self) -> bytes:
        """The client that writes the log."""
        return self._writer.author

    def body(self, event: AuditEvent) -> bytes:
        return self._writer.body(event)

    def flush(self) -> None:
        """Send the outbox: all entries are in the log on return, or AuditPending is raised."""
        self._writer.settle()

    def write_once(self, token: bytes, bodies: Sequence[bytes]) -> None:
        """Write entries, which are in the log on return; idempotent for a token."""
        if bodies and self._client.note(_LAST) != token:
            self._client.emit_each(
                [(self._stream, body) for body in bodies],
                note=Note(_LAST, token),
                schema=RECORD_SCHEMA,
                recipient=self._recipient,
            )
        self.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportContext:
    """Everything an import works with. ``now`` is read once in a run. ``recipient`` is the key of
    the reader of what is imported.

    ``accepted`` are bundles whose gap was accepted, by hex prefixes of their id, and ``reason`` is
    why. Likewise ``only`` are the bundles that may be imported, if not all may, and ``rejected``
    those that must not. ``changes`` are the changes of ``trust`` that people entered.
    """

    import_dir: ImportDirectory
    ledger: ImportLedger
    audit_outbox: AuditOutbox
    bridge: Client
    trust: TrustStore
    changes: Sequence[TrustChange]
    streams: BridgeStreamMap
    settings: ImportSettings
    privates: Sequence[bytes] = field(repr=False)
    recipient: bytes
    checkpoints: SourceCheckpoints
    operator: str
    now: int
    random: Callable[[int], bytes]
    watch: Watch = no_progress_watch
    accepted: Sequence[str] = ()
    only: Sequence[str] | None = None
    rejected: Sequence[str] = ()
    reason: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    """Disk usage below directories of the import, measured once in a run, then counted."""

    def quarantine_bytes(self) -> int:
        if "quarantine" not in self.usage:
            self.usage["quarantine"] = bytes_below(self.import_dir.root / "quarantine")
        return self.usage["quarantine"]

    def quarantine_entries(self) -> int:
        if "entries" not in self.usage:
            self.usage["entries"] = sum(1 for _ in self.import_dir.quarantine("").iterdir())
        return self.usage["entries"]

    def count_quarantined(self, size: int) -> None:
        """Count a quarantined carrier, which takes at least a directory and a block."""
        self.usage["quarantine"] = self.quarantine_bytes() + size + _ENTRY_BYTES
        self.usage["entries"] = self.quarantine_entries() + 1

    def watch_of(self, name: str) -> Watch:
        """The progress watch for the carrier of that name, which may come from a medium."""
        return prefixed(self.watch, printable(name))

    def accepts_gap(self, bundle_id: bytes) -> bool:
        return _is_named(bundle_id, self.accepted)

    def may_import(self, bundle_id: bytes) -> bool:
        return self.only is None or _is_named(bundle_id, self.only)

    def is_named(self, bundle_id: bytes) -> bool:
        """Whether the bundle was requested by its id."""
        return self.only is not None and _is_named(bundle_id, self.only)

    def rejects(self, bundle_id: bytes) -> bool:
        return _is_named(bundle_id, self.rejected)


def _is_named(bundle_id: bytes, beginnings: Sequence[str]) -> bool:
    return any(bundle_id.hex().startswith(beginning) for beginning in beginnings)
