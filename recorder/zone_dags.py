"""When the DAGs of a zone run, and how they tell of what went wrong: [dags] of ``veen.toml``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recorder.zone_acting import (
    ActingSettings,
    ApprovalSettings,
    FoldSettings,
    acting_settings,
    approval_settings,
    fold_settings,
)
from veen.settings_table import Table

HERE: Final = "here"
SPARK: Final = "spark"
LOG: Final = "log"
_OFF: Final = "off"
_CRON: Final = re.compile(r"@(hourly|daily|weekly|monthly)|[0-9*,/-]+( [0-9A-Za-z*,/#-]+){4}")
_YEAR_OF_MINUTES: Final = 527_040
_DAY_OF_SECONDS: Final = 86_400
_MANY: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DagSettings:
    """A schedule is in cron's words; None is by hand alone.

    ``medium`` is where carriers are written to, or looked for; with ``medium_is_mount`` nothing is
    exported unless something is mounted there. ``poll_sec`` is how often a sensor looks.
    ``alarm_after_min`` is how late an anchor may be, or how long an import waits for a carrier,
    before someone is told. ``notify`` is "log" or the URL of a webhook. ``reconcile_on`` is "here"
    or "spark".
    """

    checkpoint_minutes: int
    checkpoint_events: int
    anchor_minutes: int
    audit: str | None
    export: str | None
    reconcile: str | None
    retention: str | None
    medium: Path
    medium_is_mount: bool
    poll_sec: int
    alarm_after_min: int
    notify: str
    retries: int
    retry_sec: int
    reconcile_on: str
    acting: ActingSettings
    approval: ApprovalSettings
    fold: FoldSettings


def dag_settings(table: Table) -> DagSettings:
    found = DagSettings(
        checkpoint_minutes=table.number("checkpoint_minutes", 5, least=1, most=_YEAR_OF_MINUTES),
        checkpoint_events=table.number("checkpoint_events", 10_000, least=0, most=_MANY),
        anchor_minutes=table.number("anchor_minutes", 15, least=1, most=_YEAR_OF_MINUTES),
        audit=_schedule(table, "audit", "17 3 * * *"),
        export=_schedule(table, "export", "*/15 * * * *"),
        reconcile=_schedule(table, "reconcile", "47 4 * * *"),
        retention=_schedule(table, "retention", "23 5 * * 0"),
        medium=table.path("medium", "medium"),
        medium_is_mount=table.flag("medium_is_mount", default=False),
        poll_sec=table.number("poll_sec", 30, least=1, most=_DAY_OF_SECONDS),
        alarm_after_min=table.number("alarm_after_min", 60, least=1, most=_YEAR_OF_MINUTES),
        notify=_notify(table),
        retries=table.number("retries", 2, least=0, most=100),
        retry_sec=table.number("retry_sec", 30, least=1, most=_DAY_OF_SECONDS),
        reconcile_on=table.choice("reconcile_on", (HERE, SPARK), HERE),
        acting=acting_settings(table.table("acting")),
        approval=approval_settings(table.table("approval")),
        fold=fold_settings(table.table("fold")),
    )
    table.done()
    return found


def _schedule(table: Table, key: str, usual: str) -> str | None:
    found = str(table.text(key, usual))
    if found != _OFF and not _CRON.fullmatch(found):
        table.refuse(key, found, "'off', '@daily' or five fields of cron are due")
    return None if found == _OFF else found


def _notify(table: Table) -> str:
    found = str(table.text("notify", LOG))
    if found != LOG and not found.startswith(("http://", "https://")):
        table.refuse("notify", found, "'log' or the URL of a webhook is due")
    return found
