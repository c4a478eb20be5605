"""The container files, as far as they can be judged without a container engine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml  # type: ignore[import-untyped]

from support.objects import object_servers
from support.paths import ROOT
from support.spark import spark_standalone

DOCKER = ROOT / "docker"
BIN = Path(sys.executable).parent
OURS = ("hub", "recorder", "airflow", "spark", "objects")
ZONES = ("z1", "z2")
PARTS = (
    "hub", "recorder", "database", "objects", "spark-master", "spark-worker", "setup",
    "api-server", "scheduler", "dag-processor", "triggerer", "bucket",
)  # fmt: skip


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The compose file as podman-compose resolves it, with the environment files of a user."""
    folder = tmp_path_factory.mktemp("project") / "docker"
    shutil.copytree(DOCKER, folder)
    for zone in ZONES:
        shutil.copy(folder / "zone.env.example", folder / f"{zone}.env")
    done = subprocess.run(
        [
            # It asks its engine for a version first, and needs none to read a file.
            BIN / "podman-compose", "--podman-path", "/bin/echo", "--profile", "init",
            "-f", folder / "compose.yaml", "config",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = yaml.safe_load(done.stdout)
    return result["services"]  # type: ignore[no-any-return]


def networks(service: dict[str, Any]) -> set[str]:
    return set(service.get("networks") or ())


def sources(service: dict[str, Any]) -> set[str]:
    """Of its volumes, with what it may do."""
    volumes = service.get("volumes", ())
    return {f"{v['source']}:{v['target']}" if isinstance(v, dict) else v for v in volumes}


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(
        [BIN / "hadolint", "--no-color", DOCKER / "Dockerfile"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_every_image_ends_as_a_user_without_rights_and_tells_its_health() -> None:
    stages = re.split(r"^FROM ", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    bases = {re.search(r"AS (\S+)", stage)[1]: stage for stage in stages}  # type: ignore[index]
    for name in OURS:
        users: list[str] = []
        stage = bases[name]
        assert "HEALTHCHECK" in stage
        while stage is not None:
            users += reversed(re.findall(r"^USER (\S+)", stage, re.MULTILINE))
            stage = bases.get(stage.split()[0])
        assert users[0] == "10001"


def test_both_zones_are_whole(resolved: dict[str, Any]) -> None:
    expected = {f"{zone}-{part}" for zone in ZONES for part in (*PARTS, "init")}
    assert set(resolved) == expected


def test_every_root_file_system_is_read_only(resolved: dict[str, Any]) -> None:
    assert [name for name, item in resolved.items() if not item.get("read_only")] == []


def test_no_network_and_no_volume_but_the_medium_is_in_both_zones(resolved: dict[str, Any]) -> None:
    for name, item in resolved.items():
        zone = name[:2]
        assert networks(item) <= {zone}
        assert item.get("network_mode", "none") in ("none", f"service:{zone}-hub")
        own = {v for v in sources(item) if not v.startswith((f"{zone}-", "medium:"))}
        assert own == ({"z1-zone:/handover"} if name == "z2-init" else set())


def test_the_offline_zone_can_only_read_the_medium(resolved: dict[str, Any]) -> None:
    media = {
        name: {v for v in sources(item) if v.startswith("medium:")}
        for name, item in resolved.items()
    }
    for name, result in media.items():
        if result:
            assert result == {"medium:/medium:ro" if name.startswith("z2") else "medium:/medium"}
    assert media["z1-scheduler"]
    assert media["z2-scheduler"]


def test_the_initialiser_of_z2_sees_what_is_handed_over_and_no_more(
    resolved: dict[str, Any],
) -> None:
    (shown,) = [v for v in resolved["z2-init"]["volumes"] if isinstance(v, dict)]
    assert (shown["read_only"], shown["volume"]["subpath"]) == (True, "handover")


def test_ports_are_published_on_loopback_alone(resolved: dict[str, Any]) -> None:
    ports = [str(port) for item in resolved.values() for port in item.get("ports", ())]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def example() -> dict[str, str]:
    lines = (DOCKER / "zone.env.example").read_text().splitlines()
    return dict(line.split("=", maxsplit=1) for line in lines if not line.startswith("#"))


def test_every_volume_that_our_user_writes_is_made_as_theirs_in_the_image(
    resolved: dict[str, Any],
) -> None:
    """A new volume takes its owner from the folder of the image; without one it is root's."""
    ours = [item for item in resolved.values() if item["image"].startswith("veen-")]
    written = {
        volume.split(":")[1]
        for our in ours
        for volume in our.get("volumes", ())
        if isinstance(volume, str) and not volume.endswith(":ro")
    }
    (created,) = re.findall(
        r"install -d -o veen -g veen -m 0700 (.+)$",
        (DOCKER / "Dockerfile").read_text().replace("\\\n", ""),
        re.MULTILINE,
    )
    assert written <= set(created.split())
    assert {"/zone", "/medium", "/data", "/zone/hub/keys"} <= written


def test_h30_base_images_are_pinned_by_digest_and_the_store_has_no_known_advisory(
    resolved: dict[str, Any],
) -> None:
    text = (DOCKER / "Dockerfile").read_text()
    stages = set(re.findall(r" AS (\S+)", text))
    bases = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - stages
    foreign = {item["image"] for item in resolved.values() if not item["image"].startswith("veen-")}
    assert bases
    assert foreign
    for image in bases | foreign:
        assert re.fullmatch(r"[a-z0-9/]+:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64}", image), image
    (built,) = re.findall(r"github\.com/minio/minio@v0\.0\.0-([0-9]{14})-", text)
    # CVE-2025-62506 is mended in RELEASE.2025-10-15T17-29-55Z.
    assert built > "20251015172955"


@pytest.mark.parametrize("zone", ZONES)
def test_h30_only_the_hub_has_the_keys_of_hub_and_issuer(
    resolved: dict[str, Any], zone: str
) -> None:
    volumes = {f"{zone}-keys:/zone/hub/keys", f"{zone}-issuer:/zone/identities/issuer"}
    holders = {name for name, item in resolved.items() if sources(item) & volumes}
    assert holders == {f"{zone}-hub", f"{zone}-init"}
    assert all(volumes <= sources(resolved[name]) for name in holders)


@pytest.mark.parametrize("zone", ZONES)
def test_h30_a_worker_sees_the_reader_key_and_nothing_else_of_the_zone(
    resolved: dict[str, Any], zone: str
) -> None:
    (shown,) = resolved[f"{zone}-spark-worker"]["volumes"]
    assert (shown["source"], shown["target"]) == (f"{zone}-zone", "/zone/identities/reader")
    assert (shown["read_only"], shown["volume"]["subpath"]) == (True, "identities/reader")
    assert resolved[f"{zone}-spark-master"].get("volumes", []) == []


@pytest.mark.parametrize("part", ["spark-master", "spark-worker"])
def test_h30_spark_authenticates_with_a_secret_of_the_environment_file(
    resolved: dict[str, Any], part: str
) -> None:
    for zone in ZONES:
        item = resolved[f"{zone}-{part}"]
        assert item["environment"]["SPARK_DAEMON_JAVA_OPTS"] == spark_standalone.AUTHENTICATED
        assert f"{zone}.env" in str(item["env_file"])
    assert example()["_SPARK_AUTH_SECRET"]


def test_h30_a_bucket_is_made_once_and_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    server = object_servers.moto()
    try:
        for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b")):
            monkeypatch.setenv(f"AWS_{name}", value)
        words = [sys.executable, str(DOCKER / "make_bucket.py"), server.endpoint, "veen"]
        for _ in range(2):
            subprocess.run(words, check=True)
        store = boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1")
        assert "veen" in [item["Name"] for item in store.list_buckets()["Buckets"]]
    finally:
        server.stop()


def test_an_example_password_is_the_same_wherever_it_stands() -> None:
    given = example()
    for name in ("SQL_ALCHEMY_CONN", "SQL_ALCHEMY_CONN_ASYNC"):
        assert f"airflow:{given['POSTGRES_PASSWORD']}@" in given[f"AIRFLOW__DATABASE__{name}"]
    assert given["AWS_SECRET_ACCESS_KEY"] == given["MINIO_ROOT_PASSWORD"]


def test_no_container_stops_a_hub_by_a_process_number_of_another(tmp_path: Path) -> None:
    """What the Dockerfile does to dags/, done here: Airflow reads no retention DAG."""
    shutil.copytree(DOCKER.parent / "dags", tmp_path / "dags")
    (line,) = re.findall(
        r"^RUN (echo .*\.airflowignore) ", (DOCKER / "Dockerfile").read_text(), re.MULTILINE
    )
    subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, check=True)
    ignored = (tmp_path / "dags" / ".airflowignore").read_text().splitlines()
    stopping = [path.name for path in (tmp_path / "dags").glob("*.py") if is_stopping(path)]
    assert stopping == ["veen_retention.py"]
    assert set(stopping) <= set(ignored)


def is_stopping(file: Path) -> bool:
    """Whether a DAG has a task that stops the hub."""
    text = file.read_text()
    return "@dag(" in text and "stop_argv" in text


def test_no_secret_is_in_the_compose_file() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    assert not re.search(r"PASSWORD|SECRET|change-me", text)
