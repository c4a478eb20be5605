"""A checkpoint over what was imported, made by the zone's recorder and anchored: asked for by the
settings, told in audit and receipt, and not lost when it cannot be had at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.audit_log import ImportCheckpoint
from bridge.importer.completion import Covered
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import ImportRequest, run_import
from recorder.anchor.ledger import AnchorLedger
from recorder.checkpoints.store import read_document
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from support.bridge import importing_zone
from support.hub.hub_process import hub_in
from veen.errors import Untrusted
from veen.keystore.directory import ClientDir

HUB = """
admission = "open"
reads = "open"
[[principals]]
name = "recorder"
role = "recorder_admin"
public_key = "{key}"
read = ["*"]
[[streams]]
name = "import/z1/covered"
[[streams]]
name = "bridge/offline/log"
"""
RECORDER = """
zone = "z2"
[hub]
url = "{url}"
hub_id = "{hub_id}"
client = "recorder"
principal = "{principal}"
[anchor]
kind = "file"
path = "{anchors}"
"""


class Recorded:
    """A zone with a recorder beside its bridge, at a hub that both know."""

    def __init__(self, folder: Path, hub: Any, name: str = "covered") -> None:
        self.zone = importing_zone.Zone(folder / "zone", hub, name)
        self.config = folder / "recorder.toml"
        self.anchors = folder / "anchors.ledger"
        self.hub_id = hub.client().hub_id.hex()
        self.zone.write_settings(importing=f'checkpoint = "{self.config}"')
        self.configure()

    def configure(self, principal: str = "recorder", anchors: str = "anchors.ledger") -> None:
        self.config.write_text(
            RECORDER.format(
                url=self.zone.hub.url, hub_id=self.hub_id, principal=principal, anchors=anchors
            )
        )

    def bring(self, *media: Path, code: int) -> Any:
        command = [sys.executable, "-m", "cli.main", "bridge", "import", "--json"]
        command += ["--config", str(self.zone.root / "bridge.toml"), "--operator", self.zone.name]
        command += [word for medium in media for word in ("--medium", str(medium))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == code, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    def reconcile(self) -> str:
        command = [sys.executable, "-m", "cli.main", "bridge", "reconcile", "--record"]
        command += ["--config", str(self.zone.root / "bridge.toml"), "--operator", self.zone.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stderr

    def receipts(self) -> list[str]:
        paths = sorted(self.zone.import_dir.receipts.glob("*.txt"))
        return [path.read_text() for path in paths]


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    home = ClientDir(tmp_path / "recorder")
    key = home.create(now=int(time.time()), random=os.urandom, passphrase=None).client_id
    with hub_in(tmp_path / "hub", HUB.format(key=key.hex())) as hub:
        yield Recorded(tmp_path, hub)


def test_a_checkpoint_that_cannot_be_had_is_tried_again_and_reported_when_it_is_there(
    recorded: Recorded,
) -> None:
    zone = recorded.zone
    recorded.configure(principal="nobody")
    outcomes = recorded.bring(zone.medium(1, 3), code=14)
    assert (outcomes["imported_events"], outcomes["checkpoint"]["checkpoint_id"]) == (3, None)
    assert "no checkpoint covers the import yet" in outcomes["checkpoint"]["detail"]
    (recorded.config.parent / "broken.ledger").write_text("no ledger\n")
    recorded.configure(anchors="broken.ledger")
    outcomes = recorded.bring(zone.medium(4, 5), code=14)
    assert outcomes["checkpoint"]["bundles"] == 2
    assert "no anchor yet" in outcomes["checkpoint"]["detail"]
    recorded.configure()
    assert recorded.bring(code=6)["checkpoint"] is None
    checkpoint = recorded.bring(zone.medium(6, 6), code=0)["checkpoint"]
    assert (checkpoint["bundles"], checkpoint["anchor"], checkpoint["detail"]) == (
        1,
        "file-1.cbor",
        None,
    )
    first, second = (audit for audit in zone.audits() if isinstance(audit, ImportCheckpoint))
    assert (first.bundles, first.anchor) == (2, None)
    assert (second.bundles, second.anchor) == (1, "file-1.cbor")
    assert second.checkpoint_id.hex() == checkpoint["checkpoint_id"]
    texts = recorded.receipts()
    assert all(text.count("Covered by  checkpoint") == 1 for text in texts)
    assert sum(checkpoint["checkpoint_id"] in text for text in texts) == 1
    assert all(text.rstrip().splitlines()[-1].startswith("Received by") for text in texts)
    zone.check(list(range(1, 7)))
    _is_anchored(recorded, checkpoint["checkpoint_id"])
    detail = recorded.reconcile()
    assert "the entry is covered by checkpoint" in detail
    assert "anchored as file-1.cbor" in detail
    assert zone.audits()[-1].KIND == "bridge.reconciled"


def test_h27_no_checkpoint_goes_by_a_stream_map_that_was_changed_without_a_migration(
    recorded: Recorded,
) -> None:
    """The map that was accepted last has a type elsewhere; the import is done all the same."""
    home = IndexHome(recorded.config.parent / "index")
    with home.locked():
        create(home, bytes.fromhex(recorded.hub_id))
    home.stream_map.write_text('{"query.replayed":"record/app/elsewhere"}')
    outcomes = recorded.bring(recorded.zone.medium(1, 3), code=14)
    assert (outcomes["imported_events"], outcomes["checkpoint"]["checkpoint_id"]) == (3, None)
    assert "expected a migration event" in outcomes["checkpoint"]["detail"]
    home.stream_map.unlink()
    assert recorded.bring(code=0)["checkpoint"]["checkpoint_id"] is not None


def _is_anchored(recorded: Recorded, checkpoint_id: str) -> None:
    """The anchor is of a checkpoint that reaches the last imported event."""
    (path,) = recorded.config.parent.glob(f"checkpoints/checkpoints/*-{checkpoint_id}.cbor")
    document = read_document(path)
    end = document.end(recorded.zone.target)
    assert end is not None
    assert end.last_seq == 6
    ref = recorded.config.parent / "checkpoints" / "anchors" / checkpoint_id / "file-1.cbor"
    anchor = AnchorLedger(recorded.anchors, os.urandom)
    assert anchor.verify(document.log_root, ref.read_bytes()).nonce == document.checkpoint_id


def test_what_waits_for_a_checkpoint_is_known_to_a_ledger_that_is_made_again(
    recorded: Recorded,
) -> None:
    zone, reached = recorded.zone, [0]

    def cover() -> Covered:
        # The first one is of a log that the import stream is not in.
        reached[0] += 1
        return Covered(zone.world.checkpoint(3))

    order = ImportRequest(operator=zone.name, media=(zone.medium(1, 3),))
    assert run_import(zone.settings, order, zone.around(), cover=cover).covering is not None
    for path in zone.import_dir.root.glob("ledger.db*"):
        path.unlink()
    rebuild_ledger(zone.settings, ImportRequest(operator=zone.name), zone.around())
    again = run_import(zone.settings, ImportRequest(operator=zone.name), zone.around(), cover=cover)
    assert again.covering is not None
    assert "expected it to reach event 3 of import/z1/covered, got 0" in str(again.covering.trouble)
    assert recorded.bring(code=0)["checkpoint"]["bundles"] == 1
    rebuild_ledger(zone.settings, ImportRequest(operator=zone.name), zone.around())
    last = run_import(zone.settings, ImportRequest(operator=zone.name), zone.around(), cover=cover)
    assert (last.covering, reached) == (None, [2])
    zone.check([1, 2, 3])


def test_a_recorder_of_another_hub_is_refused_before_anything_is_imported(
    recorded: Recorded,
) -> None:
    recorded.hub_id = "ab" * 32
    recorded.configure()
    assert "checkpoint" in recorded.bring(recorded.zone.medium(1, 2), code=4)["detail"]
    assert recorded.zone.imported() == []


def test_a_checkpoint_that_does_not_reach_the_import_does_not_count(
    recorded: Recorded,
) -> None:
    zone = recorded.zone
    order = ImportRequest(operator=zone.name, media=(zone.medium(1, 3),))

    def short() -> Covered:
        # Of a log in which the import stream is not known at all.
        return Covered(zone.world.checkpoint(3))

    result = run_import(zone.settings, order, zone.around(), cover=short)
    assert result.covering is not None
    assert "expected it to reach event 3 of import/z1/covered, got 0" in str(
        result.covering.trouble
    )
    assert "import.checkpoint" not in zone.kinds()

    def failing() -> Covered:
        raise Untrusted("the hub's checkpoint is refused")

    again = run_import(
        zone.settings, ImportRequest(operator=zone.name), zone.around(), cover=failing
    )
    assert again.covering is not None
    assert again.covering.bundles == 1
    zone.check([1, 2, 3])
