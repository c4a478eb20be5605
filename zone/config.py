"""The settings of a zone: one directory with one ``veen.toml``, including ``[dags]``.

It is read whenever Airflow parses a DAG, so that it imports little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.acting import (
    ActingSettings,
    ApprovalSettings,
    FoldSettings,
    acting_settings,
    approval_settings,
    fold_settings,
)
from veen.objects.port import StoreLocation
from veen.system import config
from veen.system.config import (
    AIRFLOW_LISTEN,
    BadSettings,
    Table,
    is_zone,
    read_settings_file,
    refuse_unknown,
    spark_conf,
)

HERE: Final = "here"
SPARK: Final = "spark"
LOG: Final = "log"
_OFF: Final = "off"
_CRON: Final = re.compile(r"@(hourly|daily|weekly|monthly)|[0-9*,/-]+( [0-9A-Za-z*,/#-]+){4}")
_YEAR_OF_MINUTES: Final = 527_040
_DAY_OF_SECONDS: Final = 86_400
_MANY: Final = 1_000_000_000
VARIABLE: Final = config.VARIABLE
FILE: Final = "veen.toml"
ONLINE: Final = "online"
OFFLINE: Final = "offline"
ALONE: Final = "alone"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_MOST_TASKS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class DagSettings:
    """The ``[dags]`` table. A schedule is a cron expression; None is a manual start only.

    ``medium`` is where carriers are written to, or expected; with ``medium_is_mount`` nothing is
    exported unless something is mounted there. ``poll_sec`` is the interval of a sensor.
    ``alarm_after_min`` is how late an anchor may be, or how long an import waits for a carrier,
    before an alarm is raised. ``notify`` is "log" or the URL of a webhook. ``reconcile_on`` is
    "here" or "spark".
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
    settings = DagSettings(
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
    return settings


def _schedule(table: Table, key: str, usual: str) -> str | None:
    schedule = str(table.text(key, usual))
    if schedule != _OFF and not _CRON.fullmatch(schedule):
        table.refuse(key, schedule, "expected 'off', '@daily' or five fields of cron")
    return None if schedule == _OFF else schedule


def _notify(table: Table) -> str:
    notify = str(table.text("notify", LOG))
    if notify != LOG and not notify.startswith(("http://", "https://")):
        table.refuse("notify", notify, "expected 'log' or the URL of a webhook")
    return notify


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The Spark master; ``conf`` is passed to every job unchanged."""

    master: str
    conf: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowSettings:
    """The address of Airflow's API server; ``parallelism`` is the number of concurrent tasks."""

    listen: str
    parallelism: int

    @property
    def url(self) -> str:
        return f"http://{self.listen}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneConfig:
    """A zone. ``role`` is the direction of its bridge; a zone without a bridge is ``alone``.

    ``hub_data`` is the data directory of its hub, ``hub_id`` the id of that hub.
    """

    name: str
    file: Path
    role: str
    hub_id: bytes
    hub_data: Path
    storage: StoreLocation | None
    spark: SparkSettings
    airflow: AirflowSettings
    dags: DagSettings

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def exports(self) -> bool:
        return self.role == ONLINE

    @property
    def imports(self) -> bool:
        return self.role == OFFLINE


def load(path: Path) -> ZoneConfig:
    """Read the zone of a ``veen.toml``; relative paths in it are relative to its directory."""
    return read_settings_file(
        path, lambda document: parse(document, path.absolute()), "docs/veen.example.toml"
    )


def parse(document: dict[str, Any], file: Path) -> ZoneConfig:
    """Decode a ``veen.toml``, except ``hub``, ``recorder`` and ``bridge``, which have loaders."""
    if not is_zone(document):
        raise BadSettings("expected the settings of a zone, with [recorder], [storage] or [dags]")
    refuse_unknown(document)
    table = Table(document, "", file.parent)
    return ZoneConfig(
        name=_name(table),
        file=file,
        role=_role(document),
        hub_id=table.key("hub_id"),
        hub_data=table.path("hub_data", "hub"),
        storage=StoreLocation.read(table.table("storage")) if table.has("storage") else None,
        spark=_spark(table.table("spark")),
        airflow=_airflow(table.table("airflow")),
        dags=dag_settings(table.table("dags")),
    )


def _name(table: Table) -> str:
    name = str(table.text("zone"))
    if not _NAME.fullmatch(name):
        table.refuse("zone", name, "expected up to 63 of a-z, 0-9, '.', '_' and '-'")
    return name


def _role(document: dict[str, Any]) -> str:
    if "bridge" not in document:
        return ALONE
    return Table(document["bridge"], "bridge", Path()).choice("zone", (ONLINE, OFFLINE))


def _spark(table: Table) -> SparkSettings:
    settings = SparkSettings(
        master=str(table.text("master", "local[2]")), conf=spark_conf(table.table("conf"))
    )
    table.done()
    return settings


def _airflow(table: Table) -> AirflowSettings:
    settings = AirflowSettings(
        listen=table.address("listen", AIRFLOW_LISTEN),
        parallelism=table.number("parallelism", 4, least=1, most=_MOST_TASKS),
    )
    table.done()
    return settings
