"""What an export leaves in the audit log: begun, on its medium, or failed (AGB0 4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bridge.audit import AuditPending, AuditWriter
from bridge.audit_events import (
    ExportBegin,
    ExportFailed,
    ExportHeartbeat,
    ExportSuccess,
)
from bridge.carrier.ledger import LedgerEntry
from bridge.carrier.medium import BadMedium
from bridge.export_carrier import Proven
from bridge.printable import printable
from bridge.refusal import Refused
from veen.errors import VeenError

_TOLD: Final = 1000


class StagingFailed(VeenError):
    """The exporter's own directory cannot be written."""


class ExportAudit:
    """For one operator and one medium."""

    def __init__(
        self, writer: AuditWriter, *, bridge_id: bytes, operator: str, medium: str
    ) -> None:
        self._writer = writer
        self._bridge_id = bridge_id
        self._operator = operator
        self._medium = medium

    @property
    def author(self) -> bytes:
        """The client that writes the log."""
        return self._writer.author

    def settle(self) -> None:
        self._writer.settle()

    def begin(self, entry: LedgerEntry) -> None:
        self._writer.record(
            ExportBegin(
                operator=self._operator,
                bridge_id=self._bridge_id,
                n=entry.n,
                bundle_id=entry.bundle_id,
                source_hub_id=entry.hub_id,
                stream=entry.stream,
                from_seq=entry.from_seq,
                to_seq=entry.to_seq,
                checkpoint_id=entry.checkpoint_id,
                checkpoint_at=entry.created_at,
            )
        )

    def success(self, entry: LedgerEntry, proven: Proven) -> ExportSuccess:
        """What is recorded once it is on the medium; ``finish`` records it."""
        header = proven.header
        return ExportSuccess(
            operator=self._operator,
            bundle_id=header.bundle_id or b"",
            sha256=proven.sha256,
            source_hub_id=entry.hub_id,
            stream=entry.stream,
            from_seq=entry.from_seq,
            to_seq=entry.to_seq,
            count=header.count,
            bridge_id=self._bridge_id,
            n=entry.n,
            checkpoint_id=entry.checkpoint_id,
            checkpoint_at=entry.created_at,
            root=proven.root,
            medium=self._medium,
        )

    def heartbeat(self, entry: LedgerEntry) -> ExportHeartbeat:
        return ExportHeartbeat(
            operator=self._operator,
            bridge_id=self._bridge_id,
            n=entry.n,
            source_hub_id=entry.hub_id,
            checkpoint_id=entry.checkpoint_id,
            checkpoint_at=entry.created_at,
            medium=self._medium,
        )

    def finish(self, event: ExportSuccess | ExportHeartbeat) -> None:
        self._writer.record(event)

    @contextmanager
    def failing(self, stream: str | None, entry: LedgerEntry | None = None) -> Iterator[None]:
        """Record whatever goes wrong within, and let it go on."""
        try:
            yield
        except AuditPending:
            raise
        except OSError as error:
            told = f"{error.filename or 'staging'}: {error.strerror}; make room, and run it again"
            failure = StagingFailed(told)
            self._record(failure, stream, entry)
            raise failure from error
        except VeenError as error:
            self._record(error, stream, entry)
            raise

    def _record(self, error: VeenError, stream: str | None, entry: LedgerEntry | None) -> None:
        failed = ExportFailed(
            operator=self._operator,
            bundle_id=entry.bundle_id if entry else None,
            source_hub_id=entry.hub_id if entry else None,
            stream=stream,
            from_seq=entry.from_seq if entry else None,
            to_seq=entry.to_seq if entry else None,
            code=_code(error),
            told=printable(str(error), _TOLD),
            offset=error.offset if isinstance(error, Refused | BadMedium) else None,
            medium=self._medium,
        )
        try:
            self._writer.record(failed)
        except AuditPending as pending:
            error.add_note(str(pending))


def _code(error: VeenError) -> str:
    if isinstance(error, Refused):
        return f"{error.fault.code.value}/{error.fault.detail_enum}"
    return type(error).__name__
