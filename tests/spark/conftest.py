"""One Spark session for all tests here, and archives of real hubs in a directory and a bucket."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit_terms import AuditTerms
from spark_jobs.session import PUSHDOWN
from veen.objects.settings import FileSettings, StoreSettings

HERE, TESTS = Path(__file__).parent, Path(__file__).parents[1]
_NUMBER = itertools.count(1)


def _load(name: str, path: Path) -> ModuleType:
    """A module of another folder of tests; it is found under this name by whoever pickles it."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


HUBS = _load("spark_hubs", TESTS / "hub" / "storage" / "conftest.py")
LOGS = _load("spark_logs", TESTS / "audit" / "conftest.py")
PLANTED = _load("plants", TESTS / "audit" / "plants.py")
FAILING = _load("failing_files", HERE / "failing_files.py")
STORES = _load("failing_store", HERE / "failing_store.py")
SEALED = _load("sealed_hub", HERE / "sealed_hub.py")
SERVERS = _load("object_servers", TESTS / "objects" / "object_servers.py")
PROXIES = _load("fault_proxy", TESTS / "objects" / "fault_proxy.py")
STANDALONE = _load("standalone", HERE / "standalone.py")
ARCHIVES = _load("archived_hub", HERE / "archived_hub.py")
_load("table_rows", HERE / "table_rows.py")
for _name in ("query_histories", "query_oracle"):
    _load(_name, TESTS / "query" / f"{_name}.py")
_load("query_archive", HERE / "query_archive.py")
TERMS = AuditTerms(limits=HUBS.LIMITS, streams=HUBS.STREAMS)


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """What every Spark process of the tests runs in; the secrets of the store stand only here."""
    os.environ |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(HERE),
        "AWS_ACCESS_KEY_ID": SERVERS.KEYS.access_key,
        "AWS_SECRET_ACCESS_KEY": SERVERS.KEYS.secret_key,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return dict(os.environ)


@pytest.fixture(scope="session")
def spark(environment: dict[str, str]) -> Iterator[SparkSession]:
    """Two cores; a task may fail three times before its job does."""
    found = (
        SparkSession.builder.master("local[2,4]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "768m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .config(PUSHDOWN, "true")
        .getOrCreate()
    )
    yield found
    found.stop()


@pytest.fixture(scope="session")
def master(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster of two workers with a core each, on hosts of different names."""
    with STANDALONE.cluster(environment, tmp_path_factory.mktemp("worker")) as url:
        yield url


@pytest.fixture
def submit(environment: dict[str, str], master: str) -> Callable[..., Any]:
    """spark-submit to that cluster."""
    return partial(STANDALONE.submit, environment, master)


@pytest.fixture
def overwriting(tmp_path: Path, environment: dict[str, str]) -> Iterator[StoreSettings]:
    """A bucket of a server that ignores conditions, which the settings accept."""
    server = SERVERS.rclone(tmp_path / "rclone")
    yield SERVERS.s3_settings(server.endpoint, "z1/", accept_overwriting_store=True)
    server.stop()


@pytest.fixture(scope="session")
def moto() -> Iterator[Any]:
    server = SERVERS.moto()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def proxies() -> ModuleType:
    """Proxies that break what passes between a job and the bucket."""
    return PROXIES


@pytest.fixture(scope="session")
def golden_hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bench = HUBS.Bench(tmp_path_factory.mktemp("golden") / "hub")
    HUBS.fill(bench)
    bench.stop()
    found: Path = bench.root
    return found


@pytest.fixture
def settings_for(
    request: pytest.FixtureRequest, tmp_path: Path, environment: dict[str, str]
) -> Callable[[str], StoreSettings]:
    def settings(kind: str) -> StoreSettings:
        if kind == "files":
            return FileSettings(tmp_path / "store")
        endpoint = request.getfixturevalue("moto").endpoint
        found: StoreSettings = SERVERS.s3_settings(endpoint, f"spark-{next(_NUMBER)}/")
        return found

    return settings


@pytest.fixture
def in_files(golden_hub: Path, tmp_path: Path, settings_for: Callable[[str], StoreSettings]) -> Any:
    return ARCHIVES.archived(shutil.copytree(golden_hub, tmp_path / "hub"), settings_for("files"))


@pytest.fixture
def in_bucket(
    golden_hub: Path, tmp_path: Path, settings_for: Callable[[str], StoreSettings]
) -> Any:
    return ARCHIVES.archived(shutil.copytree(golden_hub, tmp_path / "hub"), settings_for("s3"))


@pytest.fixture(scope="session")
def hubs() -> ModuleType:
    return HUBS


@pytest.fixture(scope="session")
def terms() -> AuditTerms:
    return TERMS


@pytest.fixture(scope="session")
def losing() -> ModuleType:
    return STORES


@dataclass
class SealedHub:
    """A stopped hub with sealed events, its archive, and who may read it."""

    archived: Any
    client: Path
    sent: dict[bytes, Any]
    numbers: dict[tuple[bytes, bytes], int]
    now: int

    @property
    def passphrase_file(self) -> Path:
        return self.client.with_suffix(".passphrase")

    def send(self, count: int) -> None:
        """More events, pushed to the archive."""
        bench = HUBS.Bench(self.archived.root, now=self.now, sent=dict(self.numbers))
        self.sent |= SEALED.send(bench, HUBS, self.client, count)
        bench.stop()
        ARCHIVES.archived(self.archived.root, self.archived.settings)


@pytest.fixture(scope="session")
def golden_sealed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, dict[bytes, Any]]:
    folder = tmp_path_factory.mktemp("sealed")
    SEALED.a_reader(folder / "reader")
    bench = HUBS.Bench(folder / "hub")
    sent = SEALED.send(bench, HUBS, folder / "reader", 60)
    bench.stop()
    return bench, folder / "reader", sent


@pytest.fixture
def sealed_in(golden_sealed: Any, tmp_path: Path) -> Callable[[StoreSettings], SealedHub]:
    bench, client, sent = golden_sealed

    def sealed(settings: StoreSettings) -> SealedHub:
        root = shutil.copytree(bench.root, tmp_path / "sealed")
        found = ARCHIVES.archived(root, settings)
        return SealedHub(found, client, dict(sent), bench.sent, bench.now)

    return sealed


@pytest.fixture
def sealed_hub(
    sealed_in: Callable[[StoreSettings], SealedHub], settings_for: Callable[[str], StoreSettings]
) -> SealedHub:
    return sealed_in(settings_for("files"))


@pytest.fixture(scope="session")
def failing() -> ModuleType:
    return FAILING


@pytest.fixture(scope="session")
def planted() -> ModuleType:
    return PLANTED


@pytest.fixture(scope="session")
def forged() -> Any:
    return LOGS.forged
