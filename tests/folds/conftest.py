"""Archived logs of random histories, one Spark session, and the oracle of the overlays."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from veen.sign import PrivateKey

HERE, TESTS = Path(__file__).parent, Path(__file__).parents[1]
LONG = bool(os.environ.get("VEEN_TEST_LONG"))
_NUMBER = itertools.count(1)
# As it is before a session in this process puts its own words there.
ENVIRONMENT = dict(os.environ)


def _load(name: str, folder: Path) -> ModuleType:
    """A module of the tests by its bare name, as the scripts beside it import it."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


HISTORIES, ORACLE = _load("histories", TESTS / "overlay"), _load("oracle", TESTS / "overlay")
SERVERS = _load("object_servers", TESTS / "objects")
WORLD = _load("world", HERE)
STANDALONE = _load("standalone", TESTS / "spark")
for _name in ("spec_objects", "spec_client", "hub_process"):
    _load(_name, TESTS / "hub" / "server")


@pytest.fixture(scope="session")
def world() -> ModuleType:
    return WORLD


@pytest.fixture(scope="session")
def naive() -> ModuleType:
    """The folds of the oracle."""
    return ORACLE


@pytest.fixture(scope="session")
def servers() -> ModuleType:
    return SERVERS


@pytest.fixture(scope="session")
def standalone() -> ModuleType:
    """A cluster of processes."""
    return STANDALONE


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """What the processes of a cluster run in."""
    return ENVIRONMENT | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@pytest.fixture(scope="session")
def hubs() -> ModuleType:
    return sys.modules["hub_process"]


@pytest.fixture(scope="session")
def long_factor() -> int:
    return 5 if LONG else 1


@pytest.fixture(scope="session")
def a_history() -> Callable[..., list[Any]]:
    """Messages with their meaning, as ``histories.history`` draws them for an overlay."""

    def build(seed: int, size: int, overlay: str) -> list[Any]:
        found: list[Any] = HISTORIES.history(
            seed, size, HISTORIES.SCHEMAS[overlay], public=lambda key: PrivateKey(key).public
        )
        return found

    return build


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """New folders in memory where there is such a place: logs of tiny chunks sync all the time."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path_factory.mktemp
        return
    with tempfile.TemporaryDirectory(prefix="veen-folds-", dir="/dev/shm") as root:
        yield lambda name: Path(root) / f"{name}-{next(_NUMBER)}"


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return WORLD.Reader.new(tmp_path_factory.mktemp("reader") / "me")


@pytest.fixture(scope="session")
def new_hub(swift: Callable[[str], Path], reader: Any) -> Callable[[int], Any]:
    """A hub with chunks of so many entries, still empty."""
    return lambda entries: WORLD.Hub(swift("hub") / "data", reader, entries)


@pytest.fixture
def archived(
    new_hub: Callable[[int], Any], a_history: Callable[..., list[Any]], swift: Callable[[str], Path]
) -> Any:
    """The stream "ledger" of 150 messages in chunks of 20, the last one open, in a directory."""
    hub = new_hub(20)
    hub.write("ledger", a_history(7, 150, "wallet.ledger"), Random(7))
    return WORLD.in_directory(hub, swift("store"))


@pytest.fixture(scope="session")
def moto() -> Iterator[Any]:
    server = SERVERS.moto()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Two cores; a task may fail twice before its job does."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ |= {
        "AWS_ACCESS_KEY_ID": SERVERS.KEYS.access_key,
        "AWS_SECRET_ACCESS_KEY": SERVERS.KEYS.secret_key,
    }
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the tests that need it wait for it

    found = (
        SparkSession.builder.master("local[2,3]")
        .appName("folds")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield found.sparkContext
    found.stop()


@pytest.fixture
def bucket(moto: Any) -> Any:
    """The settings of an empty bucket, so to speak."""
    return SERVERS.s3_settings(moto.endpoint, f"folds-{next(_NUMBER)}/")
