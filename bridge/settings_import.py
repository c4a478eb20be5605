"""The settings of the importing side: its directories, and what lets a bundle in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.bundle import BundleLimits
from veen.settings_table import Table

_MOST_BYTES: Final = 1 << 40
_MOST_EVENTS: Final = 1 << 30
_MOST_APPROVERS: Final = 100
_MOST_WORKERS: Final = 256
_LONGEST_SCAN_SEC: Final = 86_400


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
    that are sealed to this zone.
    """

    state: Path
    zone_keys: tuple[Path, ...]
    limits: BundleLimits
    workers: int
    scan: tuple[str, ...]
    scan_timeout_sec: int
    approvals: tuple[ApprovalRule, ...]
    exclusions: tuple[ExclusionRule, ...]


def import_settings(table: Table, whole: Table) -> ImportSettings:
    usual = BundleLimits()
    found = ImportSettings(
        state=table.path("state", "import"),
        zone_keys=table.paths("zone_keys"),
        limits=BundleLimits(
            max_bytes=table.number("max_bundle_bytes", usual.max_bytes, least=1, most=_MOST_BYTES),
            max_events=table.number(
                "max_bundle_events", usual.max_events, least=1, most=_MOST_EVENTS
            ),
        ),
        workers=table.number("workers", 1, least=1, most=_MOST_WORKERS),
        scan=table.texts("scan"),
        scan_timeout_sec=table.number("scan_timeout_sec", 300, least=1, most=_LONGEST_SCAN_SEC),
        approvals=tuple(_approval(one) for one in whole.tables("approvals")),
        exclusions=tuple(_exclusion(one) for one in whole.tables("exclusions")),
    )
    table.done()
    return found


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
