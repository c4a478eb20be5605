"""The code of a failed export in the audit log, which auditors search for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bridge.audit_log import AuditEvent, AuditWriter, ExportFailed
from bridge.carrier.medium import BadMedium
from bridge.errors import CarrierFault, CarrierRefused
from bridge.exporter.deliver import ExportAudit
from bridge.exporter.run import NoExportCheckpoint


class Log:
    """Collects audit entries."""

    def __init__(self) -> None:
        self.entries: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.entries.append(event)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoExportCheckpoint("none"), "NoCheckpoint"),
        (BadMedium("read-only"), "BadMedium"),
        (CarrierRefused(CarrierFault.BUNDLE_ID, "another"), "E.SIG/BUNDLE_ID"),
    ],
)
def test_a_failure_has_the_code_of_earlier_releases(error: Any, code: str) -> None:
    log = Log()
    audit = ExportAudit(
        cast("AuditWriter", log), bridge_id=bytes(32), operator="ops", medium="usb-1"
    )
    with pytest.raises(type(error)), audit.failing("export/a"):
        raise error
    (entry,) = log.entries
    assert isinstance(entry, ExportFailed)
    assert (entry.code, entry.stream) == (code, "export/a")
