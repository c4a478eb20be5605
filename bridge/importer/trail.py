"""The audit trail of an importer: each entry once, through any crash (AGB0 4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.audit import AuditWriter
from bridge.audit_events import AuditEvent
from veen.client.client import Client
from veen.client.outbox import Note
from veen.record_event import SCHEMA

_LAST: Final = "import.audit"


class Trail:
    """One importer at a time writes it, so that the last token tells what was written."""

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

    def settle(self) -> None:
        """Everything that was kept is in the log on return, or AuditPending is raised."""
        self._writer.settle()

    def once(self, token: bytes, bodies: Sequence[bytes]) -> None:
        """The entries are in the log on return, also when this is the second call for them."""
        if bodies and self._client.note(_LAST) != token:
            self._client.emit_each(
                [(self._stream, body) for body in bodies],
                note=Note(_LAST, token),
                schema=SCHEMA,
                recipient=self._recipient,
            )
        self.settle()
