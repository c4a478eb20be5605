"""A zone: one folder with one ``veen.toml``, as those see it who run its parts together.

It is read whenever Airflow parses a DAG, so it imports little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from recorder.zone_dags import DagSettings, dag_settings
from veen import settings_file, zone_file
from veen.settings_table import BadSettings, Table
from veen.zone_file import AIRFLOW_LISTEN, is_zone, refuse_unknown

VARIABLE: Final = zone_file.VARIABLE
FILE: Final = "veen.toml"
ONLINE: Final = "online"
OFFLINE: Final = "offline"
ALONE: Final = "alone"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_MOST_TASKS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """A store as the commands of ``veen archive`` take it; its secrets are in the environment."""

    url: str
    endpoint: str | None
    region: str
    addressing: str
    accept_overwriting_store: bool

    def options(self) -> tuple[str, ...]:
        """The same on a command line."""
        found = ["--store", self.url, "--region", self.region, "--addressing", self.addressing]
        if self.endpoint is not None:
            found += ["--endpoint", self.endpoint]
        if self.accept_overwriting_store:
            found.append("--accept-overwriting-store")
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """``conf`` goes to every job as it is, for a cluster that wants more than a master."""

    master: str
    conf: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowSettings:
    """``parallelism`` is how many tasks run at once."""

    listen: str
    parallelism: int

    @property
    def url(self) -> str:
        return f"http://{self.listen}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """``role`` says which way its bridge goes; a zone without a bridge is alone.

    ``hub_data`` is the data directory of its hub, ``hub_id`` who that hub is.
    """

    name: str
    file: Path
    role: str
    hub_id: bytes
    hub_data: Path
    storage: StorageSettings | None
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


def load(path: Path) -> Zone:
    """The zone of a ``veen.toml``; relative paths in it begin at its folder."""
    return settings_file.read(
        path, lambda one: parse(one, path.absolute()), "docs/veen.example.toml"
    )


def parse(document: dict[str, Any], file: Path) -> Zone:
    """``hub``, ``recorder`` and ``bridge`` are left to the loaders of those."""
    if not is_zone(document):
        raise BadSettings("this is no file of a zone: it has no [recorder], [storage] or [dags]")
    refuse_unknown(document)
    table = Table(document, "", file.parent)
    return Zone(
        name=_name(table),
        file=file,
        role=_role(document),
        hub_id=table.key("hub_id"),
        hub_data=table.path("hub_data", "hub"),
        storage=_storage(table.table("storage")) if table.has("storage") else None,
        spark=_spark(table.table("spark")),
        airflow=_airflow(table.table("airflow")),
        dags=dag_settings(table.table("dags")),
    )


def _name(table: Table) -> str:
    found = str(table.text("zone"))
    if not _NAME.fullmatch(found):
        table.refuse("zone", found, "up to 63 of a-z, 0-9, '.', '_' and '-' are due")
    return found


def _role(document: dict[str, Any]) -> str:
    if "bridge" not in document:
        return ALONE
    return Table(document["bridge"], "bridge", Path()).choice("zone", (ONLINE, OFFLINE))


def _storage(table: Table) -> StorageSettings:
    found = StorageSettings(
        url=table.text("url"),
        endpoint=table.url("endpoint", None),
        region=table.text("region", "us-east-1"),
        addressing=table.choice("addressing", ("auto", "path", "virtual"), "auto"),
        accept_overwriting_store=table.flag("accept_overwriting_store", default=False),
    )
    table.done()
    if not found.url.startswith(("file:///", "s3://")):
        table.refuse("url", found.url, "file:///absolute/path or s3://bucket/prefix is due")
    return found


def _spark(table: Table) -> SparkSettings:
    master, conf = str(table.text("master", "local[2]")), table.table("conf")
    table.done()
    return SparkSettings(master=master, conf=MappingProxyType(_texts(conf)))


def _texts(table: Table) -> dict[str, str]:
    found = {}
    for key in table.names():
        if not key.startswith("spark."):
            table.refuse(key, table.text(key), "a key of Spark's begins with spark.")
        found[key] = str(table.text(key))
    return found


def _airflow(table: Table) -> AirflowSettings:
    found = AirflowSettings(
        listen=table.address("listen", AIRFLOW_LISTEN),
        parallelism=table.number("parallelism", 4, least=1, most=_MOST_TASKS),
    )
    table.done()
    return found
