"""The zone of an earlier version is opened, verified and continued by this one.

``earlier/zone.tar.gz`` holds one zone as the version before the merge of modules left it, made by
``earlier/make_zone.py``: a hub with events, a recorder checkpoint and its anchor, an index, the
query service's database with a finished query and an audit entry that the hub has not received, a
carrier on a medium with the state of the exporter, and the state of the zone itself.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.selftest.world import ProcessUnderTest, ServiceUnderTest
from hub.storage.datadir import DataDir
from hub.supervisor import HubLaunch
from recorder.service.database import Database
from recorder.service.recording import Audits
from support.paths import GOLDEN
from veen import captoken
from veen.captoken import CapToken
from zone import state
from zone.directory import ZoneHome
from zone.services import authorize

EARLIER = GOLDEN / "earlier" / "zone.tar.gz"
HUB_PORT, QUERY_PORT = 18471, 18472
HTTP = "record/app/http"
DAY_SEC = 86_400
WAIT_SEC = 60.0


class EarlierZone:
    """The zone of the archive on free ports, with capabilities that have not expired."""

    def __init__(self, root: Path) -> None:
        self.home = ZoneHome(root)
        self.hub = ProcessUnderTest("hub", root / "hub.log", dict(os.environ), "/readyz")
        self.service = ServiceUnderTest(root, dict(os.environ))
        self._move()
        self._issue()

    def start_hub(self) -> None:
        options = {"listen": f"127.0.0.1:{self.hub.port}"}
        launch = HubLaunch(DataDir(self.home.hub), self.home.file, options)
        self.hub.launch(launch.command("hub"))
        authorize(self.home)

    def start_service(self) -> None:
        self.service.start(self.home.file, self.home.capability("service"))

    def end(self) -> None:
        self.service.end()
        self.hub.end()

    @property
    def config(self) -> tuple[str, str]:
        return "--config", str(self.home.file)

    @property
    def api(self) -> tuple[str, ...]:
        return "--api", self.service.url, "--token-file", str(self.home.token)

    def emit(self, kind: str, client: str) -> Any:
        event = {"event_type": kind, "subject_id": "user:1", "origin": "shop", "payload": {"n": 9}}
        file = self.home.root / "events.jsonl"
        file.write_text(json.dumps(event) + "\n")
        who = ("--client", self.home.identity(client).root, "--cap", self.home.capability(client))
        return veen("recorder", "emit", *self.config, *who, "--file", file)

    def _move(self) -> None:
        """Both ports are this test's own; clients know their hub by its address."""
        for path in (self.home.file, *self.home.root.glob("identities/*/state.json")):
            text = path.read_text().replace(f":{HUB_PORT}", f":{self.hub.port}")
            path.write_text(text.replace(f":{QUERY_PORT}", f":{self.service.port}"))

    def _issue(self) -> None:
        issuer = self.home.identity("issuer").open(None).id_sign
        for path in self.home.capabilities.glob("*.cap"):
            earlier = CapToken.decode(path.read_bytes())
            token = captoken.issue(
                issuer,
                subject_pk=earlier.subject_pk,
                stream_ids=earlier.allow.stream_ids,
                ttl=DAY_SEC,
            )
            path.write_bytes(token.encode())


def veen(*argv: str | Path) -> Any:
    done = CliRunner().invoke(app, ["--json", *map(str, argv)])
    assert done.exit_code == 0, (argv, done.output)
    return json.loads(done.stdout)


def rows(result_id: str, zone: EarlierZone) -> list[Any]:
    done = CliRunner().invoke(app, ["--json", "query", "result", result_id, *zone.api])
    assert done.exit_code == 0, done.output
    return [json.loads(line)["row"] for line in done.stdout.splitlines()]


def extracted(folder: Path) -> Path:
    with tarfile.open(EARLIER) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder / "z1"


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EarlierZone]:
    """The zone with its hub running."""
    earlier = EarlierZone(extracted(tmp_path_factory.mktemp("earlier")))
    try:
        earlier.start_hub()
        yield earlier
    finally:
        earlier.end()


def test_the_state_of_the_zone_is_read(tmp_path: Path) -> None:
    root = extracted(tmp_path)
    before = state.read(ZoneHome(root))
    assert (before.stage, before.detail) == (state.ZoneStage.FAILED, ("hub: its port is in use",))
    shown = CliRunner().invoke(app, ["--json", "zone", "status", "--directory", str(root)])
    (status,) = json.loads(shown.stdout)["zones"]
    assert (status["zone"], status["stage"]) == ("z1", "failed")
    assert status["detail"] == "hub: its port is in use"


def test_recorder_checkpoints_and_anchors_verify_and_continue(zone: EarlierZone) -> None:
    (earlier,) = veen("recorder", "checkpoint", "list", *zone.config)["checkpoints"]
    assert earlier["anchors"] == 1
    (file,) = (zone.home.root / "checkpoints" / "checkpoints").iterdir()
    assert len(veen("anchor", "verify", "--checkpoint", file, *zone.config)["proven"]) == 1
    veen("recorder", "checkpoint", "create", *zone.config)
    veen("anchor", "publish", *zone.config)
    assert len(veen("recorder", "checkpoint", "verify", *zone.config)["held_by_hub"]) > 0
    files = sorted((zone.home.root / "checkpoints" / "checkpoints").iterdir())
    assert len(files) == 2
    for path in files:
        assert veen("anchor", "verify", "--checkpoint", path, *zone.config)["proven"]


def test_the_exporter_continues_after_its_last_carrier(zone: EarlierZone) -> None:
    assert zone.emit("http.access", "gateway")["acknowledged"] == 1
    veen("recorder", "checkpoint", "create", *zone.config)
    medium = zone.home.root / "medium"
    exported = veen("bridge", "export", *zone.config, "--medium", medium, "--operator", "ops")
    spans = {item["stream"]: (item["from_seq"], item["to_seq"]) for item in exported["carriers"]}
    assert spans[HTTP] == (7, 8)
    assert veen("bridge", "status", *zone.config)["zone"] == "z1"


def test_the_index_verifies_and_the_query_service_continues(zone: EarlierZone) -> None:
    assert veen("recorder", "index", "verify", *zone.config)["ok"] is True
    database = zone.home.root / "results" / "service.sqlite"
    assert Audits(Database(database)).count() == 1
    with closing(sqlite3.connect(database)) as db:
        ((result_id, status),) = db.execute("SELECT result_id, state FROM queries").fetchall()
    assert status == "completed"
    zone.start_service()
    assert veen("query", "status", result_id, *zone.api)["status"] == "completed"
    assert [row["subject_id"] for row in rows(result_id, zone)] == ["user:1"] * 3
    asked = ("--stream", HTTP, "--subject", "user:1", "--evidence", "full")
    digest = veen("query", "submit", *zone.api, *asked)
    assert digest["row_count"] >= 3
    package, home = zone.home.root / "package.json", zone.home
    recorder_id = home.identity("service").read_card().client_id.hex()
    trusted = ("--hub-id", home.zone().hub_id.hex(), "--recorder-id", recorder_id)
    veen("query", "proof", digest["result_id"], *zone.api, "--out", package)
    verified = veen("query", "verify", package, *trusted, "--hub-identity", home.hub)
    assert verified["outcome"] == "proven"
    _await_no_audits(database)
    zone.service.stop()


def _await_no_audits(database: Path) -> None:
    """The audit entry that waited is in the hub's log."""
    audits, deadline = Audits(Database(database)), time.monotonic() + WAIT_SEC
    while audits.count() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert audits.count() == 0


def test_the_log_verifies_with_what_this_version_has_added(zone: EarlierZone) -> None:
    assert zone.emit("login.failed", "access")["acknowledged"] == 1
    zone.hub.stop()
    assert veen("hub", "verify", "--data-dir", zone.home.hub)["ok"] is True
