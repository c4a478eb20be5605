"""The layout of a zone's directory, and the environment of its processes: Airflow, Spark, the
zone.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import veen
from veen.errors import Refused
from veen.keystore.directory import ClientDir
from zone import config as zones
from zone.config import VARIABLE, ZoneConfig
from zone.postgres import Postgres

DATABASE: Final = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
USERS: Final = (
    ("admin", "admin"),
    ("operator", "op"),
    ("viewer", "viewer"),
    ("service", "veen_query"),
    ("import", "veen_answers"),
)
"""The users of Airflow and their roles, as ``plugins/veen_auth.py`` knows them."""
PROGRAMS: Final = ("service", "import")
"""Accounts of the query service and the import task; people do not log in with them."""
_EXPANDED: Final = "%$"
_SHARE: Final = Path(veen.__file__).with_name("share")
"""Where a wheel has Airflow's directories; in a checkout they are beside the packages."""


@dataclass(frozen=True, slots=True)
class ZoneHome:
    """The directory of a zone. ``run`` is about its processes; everything else is persistent."""

    root: Path

    @property
    def file(self) -> Path:
        return self.root / zones.FILE

    @property
    def hub(self) -> Path:
        return self.root / "hub"

    @property
    def rest(self) -> Path:
        """While this file exists, the supervisor keeps the hub stopped."""
        return self.root / "hub.rest"

    @property
    def resting(self) -> Path:
        """The file by which the supervisor confirms that the hub is stopped."""
        return self.root / "hub.resting"

    @property
    def capabilities(self) -> Path:
        return self.root / "capabilities"

    @property
    def handover(self) -> Path:
        """Files for the other zone: public keys and names, no secrets."""
        return self.root / "handover"

    @property
    def trust(self) -> Path:
        return self.root / "trust"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def token(self) -> Path:
        """The token of the analyst at the query service."""
        return self.secrets / "analyst.token"

    @property
    def passwords(self) -> Path:
        """The passwords of Airflow's users, in the file that its SimpleAuthManager reads."""
        return self.secrets / "airflow-passwords.json"

    @property
    def airflow_keys(self) -> Path:
        return self.secrets / "airflow-keys.json"

    @property
    def airflow(self) -> Path:
        return self.root / "airflow"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    def identity(self, name: str) -> ClientDir:
        return ClientDir(self.root / "identities" / name)

    def capability(self, name: str) -> Path:
        return self.capabilities / f"{name}.cap"

    def zone(self) -> ZoneConfig:
        if not self.file.exists():
            raise Refused(
                f"{self.root}: expected a zone, with {zones.FILE}; make one with veen zone init"
            )
        return zones.load(self.file)


def verify_zone_path(home: ZoneHome) -> None:
    """Refuse a path that Airflow would expand in its settings, and so read and write elsewhere."""
    symbol = next((candidate for candidate in _EXPANDED if candidate in str(home.root)), None)
    if symbol is not None:
        raise Refused(
            f"{home.root}: expected the path of a zone without '%' and '$', got one with "
            f"{symbol!r}, which Airflow expands in its settings; give another --directory, or move "
            "the zone's folder"
        )


def environment(home: ZoneHome, zone: ZoneConfig, ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of a zone's processes. The caller's variables override the zone's, except for
    the address of Airflow.
    """
    verify_zone_path(home)
    variables = _airflow(home, zone) | _spark(zone) | _database(home) | dict(ours) | _place(zone)
    variables[VARIABLE] = str(home.file)
    variables["AIRFLOW_HOME"] = str(home.airflow)
    # A directory of the zone must not shadow one of our packages.
    variables["PYTHONSAFEPATH"] = "1"
    # A process that sets its title keeps its environment, which identifies it after a crash.
    variables["SPT_NOENV"] = "1"
    programs = Path(sys.executable).parent
    variables["PATH"] = f"{programs}{os.pathsep}{ours.get('PATH', os.defpath)}"
    return variables


def service_account(home: ZoneHome) -> dict[str, str]:
    """The account with which the query service starts a query on Spark."""
    passwords: dict[str, str] = json.loads(home.passwords.read_bytes())
    return {"VEEN_AIRFLOW_USER": "service", "VEEN_AIRFLOW_PASSWORD": passwords["service"]}


def has_own_database(ours: Mapping[str, str]) -> bool:
    """Whether PostgreSQL is embedded: the caller names no other database."""
    return DATABASE not in ours


def _database(home: ZoneHome) -> dict[str, str]:
    postgres = Postgres(home.postgres)
    return {
        DATABASE: postgres.url("psycopg2"),
        f"{DATABASE}_ASYNC": postgres.url("asyncpg"),
    }


def _airflow(home: ZoneHome, zone: ZoneConfig) -> dict[str, str]:
    keys: dict[str, str] = json.loads(home.airflow_keys.read_bytes())
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(_folder("dags")),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(_folder("plugins")),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__AUTH_MANAGER": "veen_auth.VeenAuthManager",
        "AIRFLOW__CORE__PARALLELISM": str(zone.airflow.parallelism),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{n}:{role}" for n, role in USERS),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home.passwords),
        "AIRFLOW__CORE__FERNET_KEY": _base64(keys["fernet"]),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": keys["api"],
        "AIRFLOW__API_AUTH__JWT_SECRET": keys["jwt"],
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        # DAG files change with a new version only; parsing them twice a minute takes a core.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
    }


def _folder(name: str) -> Path:
    root = _SHARE if _SHARE.is_dir() else _SHARE.parents[1]
    return root / name


def _place(zone: ZoneConfig) -> dict[str, str]:
    """The address of Airflow, from the zone's file only: a shell may start two zones."""
    host, _, port = zone.airflow.listen.rpartition(":")
    return {
        "AIRFLOW__API__HOST": host,
        "AIRFLOW__API__PORT": port,
        "AIRFLOW__API__BASE_URL": zone.airflow.url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{zone.airflow.url}/execution/",
    }


def _spark(zone: ZoneConfig) -> dict[str, str]:
    variables = {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
            {"conn_type": "spark", "host": zone.spark.master}, sort_keys=True
        ),
        "PYSPARK_PYTHON": sys.executable,
    }
    if zone.spark.master.startswith("local"):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    return variables


def _base64(digits: str) -> str:
    return base64.urlsafe_b64encode(bytes.fromhex(digits)).decode()
