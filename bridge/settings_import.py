"""The settings of the importing side: its directories, and what lets a bundle in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.bundle import BundleLimits
from bridge.carrier.packing import MAX_PARITY
from veen.settings_table import Table

DEFAULT_BUNDLE_BYTES: Final = 128 << 20
DEFAULT_BUNDLE_EVENTS: Final = 200_000
"""Twice what an exporter cuts by default: a bundle is held in memory until it is handed over."""
DEFAULT_INBOX_BYTES: Final = 16 << 30
DEFAULT_QUARANTINE_BYTES: Final = 8 << 30
DEFAULT_RESERVE_BYTES: Final = 1 << 30
_MOST_BYTES: Final = 1 << 40
_MOST_EVENTS: Final = 1 << 30
_MOST_APPROVERS: Final = 100
_MOST_WORKERS: Final = 256
_DAY_SEC: Final = 86_400
_LONGEST_SCAN_SEC: Final = _DAY_SEC
_MOST_DAYS: Final = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """``needed`` of ``approvers`` (public keys) must sign for a bundle of streams ``prefix``."""

    prefix: str
    needed: int
    approvers: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionRule:
    """Events of streams ``prefix`` whose type is ``event_type`` are not let in, and why."""

    prefix: str
    event_type: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """``state`` holds inbox, staging, waiting, committing, archive, quarantine, receipts and the
    ledger, on one file system. ``zone_keys`` are files with private keys, in hex, for carriers
    that are sealed to this zone. ``checkpoint`` are the settings of the recorder that makes and
    anchors a checkpoint after an import. A checkpoint older than ``warn_age_sec`` is told as such.
    ``max_inbox_bytes`` and ``max_quarantine_bytes`` are what may lie there; ``reserve_bytes`` of
    the file system are never used.
    """

    state: Path
    zone_keys: tuple[Path, ...]
    limits: BundleLimits
    max_inbox_bytes: int
    max_quarantine_bytes: int
    reserve_bytes: int
    workers: int
    scan: tuple[str, ...]
    scan_timeout_sec: int
    checkpoint: Path | None
    warn_age_sec: int | None
    approvals: tuple[ApprovalRule, ...]
    exclusions: tuple[ExclusionRule, ...]

    @property
    def max_carrier_bytes(self) -> int:
        """On disk: one volume of data may have as many of parity beside it as there can be."""
        return self.limits.max_bytes * (1 + MAX_PARITY)


def import_settings(table: Table, whole: Table) -> ImportSettings:
    found = ImportSettings(
        state=table.path("state", "import"),
        zone_keys=table.paths("zone_keys"),
        limits=BundleLimits(
            max_bytes=table.number(
                "max_bundle_bytes", DEFAULT_BUNDLE_BYTES, least=1, most=_MOST_BYTES
            ),
            max_events=table.number(
                "max_bundle_events", DEFAULT_BUNDLE_EVENTS, least=1, most=_MOST_EVENTS
            ),
        ),
        max_inbox_bytes=_bytes(table, "max_inbox_bytes", DEFAULT_INBOX_BYTES),
        max_quarantine_bytes=_bytes(table, "max_quarantine_bytes", DEFAULT_QUARANTINE_BYTES),
        reserve_bytes=_bytes(table, "reserve_bytes", DEFAULT_RESERVE_BYTES),
        workers=table.number("workers", 1, least=1, most=_MOST_WORKERS),
        scan=table.texts("scan"),
        scan_timeout_sec=table.number("scan_timeout_sec", 300, least=1, most=_LONGEST_SCAN_SEC),
        checkpoint=table.path("checkpoint", None),
        warn_age_sec=_days(table, "warn_age_days"),
        approvals=tuple(_approval(one) for one in whole.tables("approvals")),
        exclusions=tuple(_exclusion(one) for one in whole.tables("exclusions")),
    )
    table.done()
    return found


def _bytes(table: Table, key: str, default: int) -> int:
    return table.number(key, default, least=0, most=_MOST_BYTES)


def _days(table: Table, key: str) -> int | None:
    return table.number(key, least=0, most=_MOST_DAYS) * _DAY_SEC if table.has(key) else None


def _approval(table: Table) -> ApprovalRule:
    found = ApprovalRule(
        prefix=str(table.text("prefix")),
        needed=table.number("needed", least=1, most=_MOST_APPROVERS),
        approvers=table.keys("approvers"),
    )
    table.done()
    if found.needed > len(found.approvers):
        table.refuse("needed", found.needed, f"only {len(found.approvers)} approvers are named")
    return found


def _exclusion(table: Table) -> ExclusionRule:
    found = ExclusionRule(
        prefix=str(table.text("prefix")),
        event_type=str(table.text("event_type")),
        reason=str(table.text("reason")),
    )
    table.done()
    return found
