"""One Spark session for all tests here, and archives of real hubs in a directory and a bucket."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.paths import TESTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recorder.archive.audit import AuditTerms
    from support.spark.sealed_hub import SealedHub
    from veen.objects.port import StoreSettings

_NUMBER = itertools.count(1)


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """What every Spark process of the tests runs in; the secrets of the store stand only here."""
    from support.objects import object_servers

    os.environ |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(TESTS),
        "AWS_ACCESS_KEY_ID": object_servers.KEYS.access_key,
        "AWS_SECRET_ACCESS_KEY": object_servers.KEYS.secret_key,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return dict(os.environ)


@pytest.fixture(scope="session")
def spark_session(spark_environment: dict[str, str]) -> Iterator[SparkSession]:
    """Two cores; a task may fail three times before its job does."""
    from pyspark.sql import SparkSession

    from spark_jobs.session import PUSHDOWN

    result = (
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
    yield result
    result.stop()


@pytest.fixture(scope="session")
def spark_master(
    spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a cluster of two workers with a core each, on hosts of different names."""
    from support.spark import spark_standalone

    with spark_standalone.cluster(spark_environment, tmp_path_factory.mktemp("worker")) as url:
        yield url


@pytest.fixture
def spark_submit(spark_environment: dict[str, str], spark_master: str) -> Callable[..., Any]:
    """spark-submit to that cluster."""
    from support.spark import spark_standalone

    return partial(spark_standalone.submit, spark_environment, spark_master)


@pytest.fixture
def overwriting_store(tmp_path: Path, spark_environment: dict[str, str]) -> Iterator[StoreSettings]:
    """A bucket of a server that ignores conditions, which the settings accept."""
    from support.objects import object_servers

    server = object_servers.rclone(tmp_path / "rclone")
    yield object_servers.s3_settings(server.endpoint, "z1/", accept_overwriting_store=True)
    server.stop()


@pytest.fixture
def store_settings_for(
    request: pytest.FixtureRequest, tmp_path: Path, spark_environment: dict[str, str]
) -> Callable[[str], StoreSettings]:
    """The settings of an empty store of the named kind."""
    from support.objects import object_servers
    from veen.objects.port import FileSettings

    def settings(kind: str) -> StoreSettings:
        if kind == "files":
            return FileSettings(tmp_path / "store")
        endpoint = request.getfixturevalue("moto").endpoint
        result: StoreSettings = object_servers.s3_settings(endpoint, f"spark-{next(_NUMBER)}/")
        return result

    return settings


@pytest.fixture
def in_files(
    golden_hub: Path, tmp_path: Path, store_settings_for: Callable[[str], StoreSettings]
) -> Any:
    from support.spark import archived_hub

    return archived_hub.archived(
        shutil.copytree(golden_hub, tmp_path / "hub"), store_settings_for("files")
    )


@pytest.fixture
def in_bucket(
    golden_hub: Path, tmp_path: Path, store_settings_for: Callable[[str], StoreSettings]
) -> Any:
    from support.spark import archived_hub

    return archived_hub.archived(
        shutil.copytree(golden_hub, tmp_path / "hub"), store_settings_for("s3")
    )


@pytest.fixture(scope="session")
def audit_terms() -> AuditTerms:
    from recorder.archive.audit import AuditTerms
    from support.hub.driven_hub import LIMITS, STREAMS

    return AuditTerms(limits=LIMITS, streams=STREAMS)


@pytest.fixture(scope="session")
def golden_sealed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, dict[bytes, Any]]:
    from support.hub import driven_hub
    from support.spark.sealed_hub import a_reader, send

    folder = tmp_path_factory.mktemp("sealed")
    a_reader(folder / "reader")
    bench = driven_hub.Bench(folder / "hub")
    sent = send(bench, folder / "reader", 60)
    bench.stop()
    return bench, folder / "reader", sent


@pytest.fixture
def sealed_in(golden_sealed: Any, tmp_path: Path) -> Callable[[StoreSettings], SealedHub]:
    from support.spark import archived_hub
    from support.spark.sealed_hub import SealedHub

    bench, client, sent = golden_sealed

    def sealed(settings: StoreSettings) -> SealedHub:
        root = shutil.copytree(bench.root, tmp_path / "sealed")
        paths = archived_hub.archived(root, settings)
        return SealedHub(paths, client, dict(sent), bench.sent, bench.now)

    return sealed


@pytest.fixture
def sealed_hub(
    sealed_in: Callable[[StoreSettings], SealedHub],
    store_settings_for: Callable[[str], StoreSettings],
) -> SealedHub:
    return sealed_in(store_settings_for("files"))
