"""Directories that an earlier version wrote are opened, verified and continued by this one.

``earlier/zones.tar.gz`` holds two zones as the version before the merge of modules left them: hubs
with their logs, clients with outboxes, a bridge with a bundle imported, a second that waits behind
a gap and a third in quarantine. Its files use names that this version writes differently.
"""

from __future__ import annotations

import json
import os
import random
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.audit_log import read_log
from bridge.connect import open_bridge_client
from bridge.importer.directory import ImportDirectory
from bridge.importer.ledger import ImportLedger
from bridge.importer.reason import quarantined
from bridge.importer.status import import_status
from bridge.settings import IdentitySettings
from bridge.stream_map import OFFLINE_LOG
from cli.main import app
from cli.selftest.world import HubUnderTest
from support.paths import GOLDEN
from veen.client.client import Client
from veen.hub_identity import HubIdentity
from veen.system.config import HubConfig
from veen.system.environment import Runtime
from zone import state
from zone.directory import ZoneHome

EARLIER = GOLDEN / "earlier" / "zones.tar.gz"


@pytest.fixture(scope="module")
def zones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("earlier")
    with tarfile.open(EARLIER) as archive:
        archive.extractall(root, filter="data")
    for path in root.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return root


@contextmanager
def reader(zone: Path, hub: HubUnderTest) -> Iterator[Client]:
    """The reader of a zone, as a client of its hub."""
    identity = IdentitySettings(
        client=zone / "reader", passphrase_file=None, principal="reader", capability=None
    )
    hub_id = HubIdentity.decode((zone / "hub" / "hub-identity.cbor").read_bytes()).hub_id
    config = HubConfig(url=hub.url, hub_id=hub_id, ca=None)
    chance = random.Random(7)
    runtime = Runtime(clock=lambda: int(time.time()), random=chance.randbytes, sleep=time.sleep)
    with open_bridge_client(config, identity, runtime=runtime) as client:
        client.meet()
        yield client


@pytest.mark.parametrize("zone", ["z1", "z2"])
def test_a_log_of_an_earlier_version_verifies(zones: Path, zone: str) -> None:
    done = CliRunner().invoke(
        app, ["--json", "hub", "verify", "--data-dir", str(zones / zone / "hub")]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["ok"] is True


def test_an_import_ledger_of_an_earlier_version_is_shown_and_not_changed(zones: Path) -> None:
    import_dir = ImportDirectory(zones / "z2" / "import")
    before = import_dir.ledger.read_bytes()
    status = import_status(import_dir)
    assert status.bundles == {"imported": 1, "waiting": 1}
    assert ["events 3 to 4" in row.detail for row in status.unfinished] == [True]
    assert import_dir.ledger.read_bytes() == before


def test_an_import_ledger_of_an_earlier_version_is_migrated(zones: Path) -> None:
    import_dir = ImportDirectory(zones / "z2" / "import")
    with closing(ImportLedger(import_dir.ledger)) as ledger:
        rows = {row.state: row for row in ledger.bundles()}
        assert set(rows) == {"imported", "waiting"}
        assert "events 3 to 4" in rows["waiting"].detail
        plan = ledger.plan(rows["imported"].bundle_id)
        assert plan is not None
        assert (plan.done, plan.written, plan.excluded) == (True, 2, "[]")
    status = import_status(import_dir)
    assert [row.detail for row in status.unfinished] == [rows["waiting"].detail]


def test_a_reason_of_an_earlier_version_is_shown(zones: Path) -> None:
    carriers, total = quarantined(zones / "z2" / "import" / "quarantine", 10)
    assert total == 1
    assert [carrier.code for carrier in carriers] == ["E.SIG/VOLUME"]
    assert "v001.agv" in carriers[0].detail


def test_a_hub_of_an_earlier_version_starts_and_its_audit_log_is_read(zones: Path) -> None:
    zone = zones / "z2"
    hub = HubUnderTest(zone, (zone / "hub.toml").read_text(), dict(os.environ))
    hub.start()
    try:
        with reader(zone, hub) as client:
            entries = [entry.event for entry in read_log(client, OFFLINE_LOG)]
    finally:
        hub.end()
    assert [entry.KIND for entry in entries] == [
        "import.begin", "import.success", "import.waiting", "import.quarantined",
    ]  # fmt: skip
    assert "v001.agv" in getattr(entries[-1], "detail", "")


def test_a_state_of_a_supervisor_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    document = {"stage": "failed", "supervisor": None, "running": [], "told": ["hub: no port"]}
    home = ZoneHome(tmp_path)
    home.run.mkdir()
    (home.run / "state.json").write_text(json.dumps(document))
    result = state.read(home)
    assert (result.stage, result.detail) == (state.ZoneStage.FAILED, ("hub: no port",))
