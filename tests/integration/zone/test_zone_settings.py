"""veen.toml: what it may not say, and that every loader finds its own part in it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from bridge import settings as bridge_settings
from hub import settings as hub_settings
from recorder import settings as recorder_settings
from recorder.acting import ActingSettings, ApprovalSettings, FoldSettings
from support.paths import ROOT
from veen.objects.port import FileSettings, StoreLocation
from veen.system.config import BadSettings
from zone.config import (
    AirflowSettings,
    DagSettings,
    SparkSettings,
    ZoneConfig,
    load,
    parse,
)

DOCS = ROOT / "docs"
EXAMPLE = DOCS / "veen.example.toml"
HUB_ID = "11" * 32
KINDS = (
    StoreLocation, SparkSettings, AirflowSettings, DagSettings, ActingSettings,
    ApprovalSettings, FoldSettings,
)  # fmt: skip


def a_document(**changes: Any) -> dict[str, Any]:
    return {"zone": "z1", "hub_id": HUB_ID, "recorder": {}} | changes


def read(**changes: Any) -> ZoneConfig:
    return parse(a_document(**changes), Path("/zones/z1/veen.toml"))


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"zone": "Z 1"}, "zone = 'Z 1'"),
        ({"zone": 7}, "zone = 7"),
        ({"hub_id": "11"}, "hub_id = '11': expected 64 hex digits"),
        ({"recoder": {}}, "recoder = {}: unknown key"),
        ({"dags": 5}, "dags = 5: expected a table"),
        ({"bridge": {"zone": "both"}}, "bridge.zone = 'both'"),
        ({"bridge": {}}, "bridge.zone is missing"),
        ({"storage": {}}, "storage.url is missing"),
        ({"storage": {"url": "http://x"}}, "storage.url = 'http://x'"),
        ({"storage": {"url": "s3://b", "key": "x"}}, "storage.key = 'x': unknown key"),
        ({"storage": {"url": "s3://b", "addressing": "x"}}, "storage.addressing = 'x'"),
        ({"spark": {"master": ""}}, "spark.master = ''"),
        ({"spark": {"conf": {"x": "y"}}}, "spark.conf.x = 'y': expected a key"),
        ({"spark": {"conf": {"spark.x": 1}}}, "spark.conf.spark.x = 1"),
        ({"airflow": {"listen": "8081"}}, "airflow.listen = '8081'"),
        ({"airflow": {"password": "x"}}, "airflow.password = 'x': unknown key"),
        ({"airflow": {"parallelism": 0}}, "airflow.parallelism = 0"),
        ({"dags": {"audit": "at night"}}, "dags.audit = 'at night': expected 'off'"),
        ({"dags": {"audit": "* * * *"}}, "dags.audit"),
        ({"dags": {"checkpoint_minutes": 0}}, "dags.checkpoint_minutes = 0"),
        ({"dags": {"notify": "mail"}}, "dags.notify = 'mail'"),
        ({"dags": {"acting": {"key": 1}}}, "dags.acting.key = 1"),
        ({"dags": {"approval": {"needed": 0}}}, "dags.approval.needed = 0"),
        ({"dags": {"approval": {"needed": 2, "people": ["ann"]}}}, "dags.approval.people"),
        ({"dags": {"reconcile_on": "moon"}}, "dags.reconcile_on = 'moon'"),
        ({"dags": {"fold": {"plaintext": True}}}, "dags.fold.plaintext = True"),
        ({"dags": {"minutes": 1}}, "dags.minutes = 1: unknown key"),
    ],
)
def test_refuses(changes: dict[str, Any], detail: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(detail)):
        read(**changes)


def test_refuses_the_file_of_a_recorder_alone() -> None:
    with pytest.raises(BadSettings, match="expected the settings of a zone"):
        load(DOCS / "recorder.example.toml")


@pytest.mark.parametrize(
    ("text", "detail"),
    [(None, "No such file"), ("zone = ", "not TOML"), ("zone = 'x'", "expected the settings")],
)
def test_an_unreadable_file_is_named(tmp_path: Path, text: str | None, detail: str) -> None:
    path = tmp_path / "veen.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadSettings, match=f"{re.escape(str(path))}: .*{detail}"):
        load(path)


def test_what_is_not_said_has_safe_defaults() -> None:
    result = read()
    assert (result.role, result.exports, result.imports) == ("alone", False, False)
    assert (result.folder, result.hub_data) == (Path("/zones/z1"), Path("/zones/z1/hub"))
    assert result.storage is None
    assert (result.spark.master, dict(result.spark.conf)) == ("local[2]", {})
    assert (result.airflow.url, result.airflow.parallelism) == ("http://127.0.0.1:8081", 4)
    assert (result.dags.checkpoint_minutes, result.dags.notify) == (5, "log")
    assert result.dags.medium == Path("/zones/z1/medium")


def test_a_schedule_can_be_off() -> None:
    assert read(dags={"export": "off", "audit": "@daily"}).dags.export is None


@pytest.mark.parametrize(("zone", "exports"), [("online", True), ("offline", False)])
def test_the_bridge_gives_the_role(zone: str, exports: bool) -> None:
    result = read(bridge={"zone": zone})
    assert (result.role, result.exports, result.imports) == (zone, exports, not exports)


def test_storage_is_handed_to_commands_without_a_secret() -> None:
    storage = read(storage={"url": "s3://b/p", "endpoint": "http://127.0.0.1:1"}).storage
    assert storage is not None
    assert storage.arguments() == (
        *("--store", "s3://b/p", "--region", "us-east-1", "--addressing", "auto"),
        *("--endpoint", "http://127.0.0.1:1"),
    )


def test_the_example_loads_by_every_loader_at_the_defaults_it_names() -> None:
    zone, hub = load(EXAMPLE), hub_settings.load(EXAMPLE)
    recorder, bridge = recorder_settings.load(EXAMPLE), bridge_settings.load(EXAMPLE)
    assert (zone.name, recorder.zone, bridge.name) == ("plant-1",) * 3
    usual = read(dags={"medium": str(DOCS / "medium")}).dags
    assert replace(zone.dags, acting=usual.acting) == usual
    assert zone.dags.acting.client == DOCS / "identities" / "admin"
    assert hub.url == recorder.hub.url == bridge.hub.url
    assert zone.hub_id == recorder.hub.hub_id == bridge.hub.hub_id
    assert recorder.objects == FileSettings(Path("/var/lib/veen/objects"))
    assert (recorder.query.spark_master, recorder.query.airflow_url) == (
        zone.spark.master,
        zone.airflow.url,
    )
    assert recorder.query.spark_conf == zone.spark.conf
    assert recorder.hub.client == DOCS / "identities" / "service"


@pytest.mark.parametrize(
    "key",
    sorted({field.name for kind in KINDS for field in fields(kind)}),
)
def test_every_key_is_in_the_example(key: str) -> None:
    assert re.search(rf"^(# |\[spark\.|\[dags\.)?{key}\b", EXAMPLE.read_text(), re.MULTILINE)


def zone_text(text: str) -> str:
    return text.replace('zone = "plant-1"', 'zone = "plant-1"\nnonsense = 1', 1)


@pytest.mark.parametrize("loader", [hub_settings, recorder_settings, bridge_settings])
def test_every_loader_refuses_a_key_that_no_part_has(loader: Any, tmp_path: Path) -> None:
    path = tmp_path / "veen.toml"
    path.write_text(zone_text(EXAMPLE.read_text()))
    with pytest.raises((BadSettings, hub_settings.BadHubSettings), match="nonsense = 1"):
        loader.load(path)


@pytest.mark.parametrize("loader", [hub_settings, bridge_settings])
def test_a_part_that_is_missing_is_named(loader: Any, tmp_path: Path) -> None:
    path = tmp_path / "veen.toml"
    path.write_text("zone = 'z1'\n[recorder]\n")
    with pytest.raises((BadSettings, hub_settings.BadHubSettings), match="this zone has no"):
        loader.load(path)


def example(**of_recorder: Any) -> dict[str, Any]:
    document = tomllib.loads(EXAMPLE.read_text())
    document["recorder"] |= of_recorder
    return document


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"zone": "z2"}, "recorder.zone: in the file of a zone this is zone, at the top"),
        ({"objects": {}}, "recorder.objects: in the file of a zone this is [storage]"),
        ({"hub": {}}, "recorder.hub.client is missing"),
        ({"hub": 1}, "recorder.hub = 1: expected a table"),
        ({"query": {"listen": 1}}, "recorder.query.listen = 1"),
    ],
)
def test_an_error_names_the_table_of_the_zone_file(changes: dict[str, Any], detail: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(detail)):
        recorder_settings.parse(example(**changes), Path("/x"))


def test_a_part_may_say_another_hub_than_the_zone() -> None:
    other = {"url": "https://elsewhere", "hub_id": "22" * 32, "client": "c"}
    result = recorder_settings.parse(example(hub=other), Path("/x"))
    assert (result.hub.url, result.hub.hub_id.hex()) == ("https://elsewhere", "22" * 32)


def test_a_hub_with_tls_is_found_by_https() -> None:
    document = example()
    document["hub"] |= {"listen": "0.0.0.0:99", "tls_cert": "a", "tls_key": "b"}
    assert recorder_settings.parse(document, Path("/x")).hub.url == "https://127.0.0.1:99"


def test_reading_a_zone_imports_little() -> None:
    """Airflow reads it at every parse of every DAG."""
    code = (
        "import sys, zone.config, zone.artefacts;"
        "print([one for one in ('cbor2','nacl','pyarrow','httpx','boto3') if one in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
