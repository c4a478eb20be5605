"""Archived logs of random histories, one Spark session, and the oracle of the overlays."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.long_form import LONG
from support.objects import object_servers
from support.overlay import overlay_histories
from support.recorder import fold_world
from veen.crypto import SigningKey

_NUMBER = itertools.count(1)
# As it is before a session in this process puts its own words there.
ENVIRONMENT = dict(os.environ)


@pytest.fixture(scope="session")
def cluster_environment() -> dict[str, str]:
    """What the processes of a cluster run in."""
    return ENVIRONMENT | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@pytest.fixture(scope="session")
def fold_long_factor() -> int:
    return 5 if LONG else 1


@pytest.fixture(scope="session")
def a_signed_history() -> Callable[..., list[Any]]:
    """Messages with their meaning, as ``histories.history`` draws them for an overlay."""

    def build(seed: int, size: int, overlay: str) -> list[Any]:
        anies: list[Any] = overlay_histories.history(
            seed,
            size,
            overlay_histories.SCHEMAS[overlay],
            public=lambda key: SigningKey(key).public,
        )
        return anies

    return build


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """New folders in memory where there is such a place: logs of tiny chunks sync all the time."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path_factory.mktemp
        return
    with tempfile.TemporaryDirectory(prefix="veen-folds-", dir="/dev/shm") as root:
        yield lambda name: Path(root) / f"{name}-{next(_NUMBER)}"


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fold_world.Reader.new(tmp_path_factory.mktemp("reader") / "me")


@pytest.fixture(scope="session")
def new_hub(memory_folder: Callable[[str], Path], reader: Any) -> Callable[[int], Any]:
    """A hub with chunks of so many entries, still empty."""
    return lambda entries: fold_world.Hub(memory_folder("hub") / "data", reader, entries)


@pytest.fixture
def archived(
    new_hub: Callable[[int], Any],
    a_signed_history: Callable[..., list[Any]],
    memory_folder: Callable[[str], Path],
) -> Any:
    """The stream "ledger" of 150 messages in chunks of 20, the last one open, in a directory."""
    hub = new_hub(20)
    hub.write("ledger", a_signed_history(7, 150, "wallet.ledger"), Random(7))
    return fold_world.in_directory(hub, memory_folder("store"))


@pytest.fixture(scope="session")
def spark_context() -> Iterator[Any]:
    """Two cores; a task may fail twice before its job does."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ |= {
        "AWS_ACCESS_KEY_ID": object_servers.KEYS.access_key,
        "AWS_SECRET_ACCESS_KEY": object_servers.KEYS.secret_key,
    }
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the tests that need it wait for it

    result = (
        SparkSession.builder.master("local[2,3]")
        .appName("folds")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield result.sparkContext
    result.stop()


@pytest.fixture
def bucket(moto: Any) -> Any:
    """The settings of an empty prefix of a bucket."""
    return object_servers.s3_settings(moto.endpoint, f"folds-{next(_NUMBER)}/")
