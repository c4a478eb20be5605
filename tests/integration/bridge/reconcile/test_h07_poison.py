"""H07: messages that cannot be opened, in every log that anybody reads.

All of them were accepted by hubs of earlier releases. The readers of archives (folds, the events
table, queries on Spark) meet the same messages in the worlds of their own tests.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bridge.audit_log import (
    AuditEvent,
    AuditUnread,
    AuditWriter,
    ExportSuccess,
    LedgerRebuilt,
    read_log,
)
from bridge.carrier.verify import VerifyContext
from bridge.connect import open_bridge_client
from bridge.exporter.build import RolledBack
from bridge.exporter.deliver import Media
from bridge.exporter.run import ExportedCarrier, ExportSetup, opened
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import ImportRequest, run_import
from bridge.reconcile.collect import Carried, collect_offline
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.render import text
from bridge.reconcile.report import Class
from bridge.settings import BridgeSettings, IdentitySettings
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG, default_target
from bridge.trust import TrustStore
from recorder.index import imports
from recorder.index.engine import EngineLimits, answer
from recorder.index.imports import ImportedFollower
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from recorder.index.writer import writing
from recorder.query.descriptor import normalise
from recorder.replay.job import Job
from recorder.replay.output import form_named
from recorder.replay.plan import HubSource, by_place
from recorder.replay.verify import check_file
from recorder.service.rerun import read_beyond
from support import poison
from support.bridge.reconcile_real_history import RealHistory
from support.bridge.reconcile_real_sides import AROUND, HASTY, Side, hub_toml
from support.hub.hub_process import hub_in
from support.recorder import index_recorded
from veen.client.checkpoints import latest_recorder_checkpoint
from veen.client.client import Client
from veen.keystore.directory import ClientDir

GOOD = 2
BAD = len(poison.KINDS)
LAST = 2 * GOOD + BAD
NO_KEY_OPENS = 3
"""Of the kinds: padding, header and cap_ref; of the others another key might."""
CLEAN = "export/history/161"


@dataclass
class World:
    """Two zones; in Z1 one stream is poisoned between its events, and one is not."""

    online: Side
    offline: Side
    bad: RealHistory
    clean: RealHistory
    folder: Path

    def card(self, side: Side, name: str) -> bytes:
        return ClientDir(side.folder / name).read_card().recipient(int(time.time()))

    def plant(self, side: Side, stream: str, name: str) -> None:
        """One message of each kind, for whoever reads that stream, by a client of its own."""
        poison.Poisoner.new(self.card(side, name)).plant(side.hub.data, stream)

    @property
    def z1(self) -> BridgeSettings:
        return self.online.settings([{"source": item} for item in (self.bad.stream, CLEAN)])

    @property
    def z2(self) -> BridgeSettings:
        hub_id = self.online.identity.hub_id.hex()
        sources = (self.bad.stream, CLEAN, ONLINE_LOG)
        return self.offline.settings(
            [{"source": source, "hub_id": hub_id} for source in sources],
            reader={"client": "reader"},
            trust=str(self.bad.folder / "trust"),
            **{"import": {"state": str(self.folder / "state")}},
        )

    def acting(self, settings: BridgeSettings, identity: IdentitySettings | None) -> Client:
        assert identity is not None
        return open_bridge_client(settings.hub, identity, runtime=AROUND, retry_policy=HASTY)

    def export(self, medium: Path) -> Iterator[ExportedCarrier]:
        medium.mkdir()
        run = ExportSetup(
            media=Media(roots=(medium,), medium_id=str(medium)),
            operator="h07",
            runtime=AROUND,
            now_ms=lambda: time.time_ns() // 1_000_000,
            retry_policy=HASTY,
        )
        with opened(self.z1, run) as exporter:
            yield from exporter.export()

    def audits(self) -> list[AuditEvent]:
        settings = self.z1
        with self.acting(settings, settings.bridge) as reader:
            return [recorded_entry.event for recorded_entry in read_log(reader, ONLINE_LOG)]

    def record(self, stream: str, event: AuditEvent, recipient: bytes) -> bytes:
        """An entry as the auditor of Z1 writes it, and who that is."""
        settings = self.z1
        with self.acting(settings, settings.audit) as auditor:
            AuditWriter(auditor, stream, origin="h07", recipient=recipient, clock=lambda: 0).record(
                event
            )
            return auditor.session.identity.client_id


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("h07")
    with (
        hub_in(folder / "z1-hub", hub_toml(folder / "z1")) as online,
        hub_in(folder / "z2-hub") as offline,
    ):
        sides = Side(folder / "z1", online, "online"), Side(folder / "z2", offline, "offline")
        bad = RealHistory(160, *sides, folder / "bad")
        result = World(*sides, bad, RealHistory(161, *sides, folder / "clean"), folder)
        result.plant(result.online, ONLINE_LOG, "bridge")
        bad.record("config.changed", [{"n": item} for item in range(GOOD)])
        result.plant(result.online, bad.stream, "bridge")
        bad.record("config.changed", [{"n": item} for item in range(GOOD)])
        result.clean.record("config.changed", [{"n": item} for item in range(GOOD)])
        yield result


@pytest.fixture(scope="module")
def carried(world: World) -> list[ExportedCarrier]:
    """All of Z1, in the very first export."""
    return list(world.export(world.folder / "medium"))


@pytest.fixture(scope="module")
def imported(world: World, carried: list[ExportedCarrier]) -> BridgeSettings:
    """All of it in Z2, where an import stream and the audit log are poisoned as well."""
    for stream in (default_target(world.bad.stream), OFFLINE_LOG):
        world.plant(world.offline, stream, "reader")
    order = ImportRequest(operator="h07", media=(world.folder / "medium",))
    result = run_import(world.z2, order, AROUND, retry_policy=HASTY)
    assert result.pending is None
    assert [outcome.state.value for outcome in result.outcomes] == ["imported"] * len(carried)
    return world.z2


def test_h07_export_carries_what_cannot_be_opened_and_names_it(
    world: World, carried: list[ExportedCarrier]
) -> None:
    ends = {carrier.entry.stream: carrier.entry.to_seq for carrier in carried}
    assert (ends[world.bad.stream], ends[CLEAN]) == (LAST, GOOD)
    result = [carrier.unopened for carrier in carried if carrier.entry.stream == world.bad.stream]
    assert sum(item.count for item in result) == len(poison.UNOPENABLE)
    assert sum(item.bad for item in result) == NO_KEY_OPENS
    named = dict(pair for item in result for pair in item.first)
    assert list(named) == [GOOD + 1, GOOD + 3, GOOD + 4]
    assert named[GOOD + 1] == "ciphertext: expected zero bytes as padding, got others"
    assert named[GOOD + 4] == "cap_ref names another capability than auth_ref"


def test_h07_the_log_of_an_audit_is_read_past_them(
    world: World, carried: list[ExportedCarrier], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        kinds = [audit.KIND for audit in world.audits()]
    assert kinds == ["export.begin", "export.success"] * len(carried)
    assert len([record for record in caplog.records if ONLINE_LOG in record.message]) == BAD


def test_h07_import_and_reconcile_take_them_as_alarms_and_nothing_else(
    world: World, imported: BridgeSettings, tmp_path: Path
) -> None:
    means = VerifyContext(trust=TrustStore.read(imported.trust), scratch=tmp_path)
    with world.acting(imported, imported.reader) as reader:
        report = reconcile(collect_offline(imported, reader, Carried(means)).facts)
    (result,) = (stream for stream in report.streams if stream.stream == world.bad.stream)
    assert result.classes[Class.IMPORTED] == Ranges([(1, LAST)])
    target = default_target(world.bad.stream)
    assert {(message.target, message.seq) for message in report.foreign} == {
        (stream, seq) for stream in (target, OFFLINE_LOG) for seq in range(1, BAD + 1)
    }
    assert f"{OFFLINE_LOG} 1 is no entry" in text(report)


def test_h07_the_ledger_is_made_again_past_them(world: World, imported: BridgeSettings) -> None:
    ledger = rebuild_ledger(imported, ImportRequest(operator="h07", media=()), AROUND, HASTY)
    assert ledger.events == LAST + GOOD


def test_h07_the_index_of_imports_goes_past_them(
    world: World, imported: BridgeSettings, tmp_path: Path
) -> None:
    home, hub = IndexHome(tmp_path / "index"), world.online.identity
    targets = frozenset({default_target(world.bad.stream), default_target(CLEAN)})
    with (
        world.acting(imported, imported.reader) as reader,
        home.locked(),
        writing(create(home, reader.meet().hub.hub_id)) as writer,
    ):
        follower = ImportedFollower(reader, writer, {hub.hub_id: hub}, targets)
        assert follower.round() == LAST + GOOD
        held = {
            stream.name: (stream.position, stream.unread)
            for stream in writer.streams()
            if stream.hub_id == hub.hub_id
        }
    assert held == {world.bad.stream: (LAST, BAD), CLEAN: (GOOD, 0)}
    subscribed = imports.Imports().joined(targets, {hub.hub_id: hub})
    imports.store_import(home, subscribed)
    with world.acting(imported, imported.reader) as reader:
        assert read_beyond(reader, home) == {}


def test_h07_index_and_query_count_them(world: World, tmp_path: Path) -> None:
    home, settings = IndexHome(tmp_path / "index"), world.z1
    with world.acting(settings, settings.bridge) as reader:
        expected = frozenset({world.bad.stream, CLEAN})
        assert index_recorded.catch_up(reader, home, requested=expected) == LAST + GOOD
        checkpoint = latest_recorder_checkpoint(reader.meet(), None)
        assert checkpoint is not None
        hub = reader.session.hub
    rows = index_recorded.dump(home)[world.bad.stream][2:]
    faults = [row[4] for row in rows]
    assert faults == [*[None] * GOOD, *["UNOPENED"] * (BAD - 1), "MALFORMED", *[None] * GOOD]
    query = {
        "version": 1,
        "scope": [world.bad.stream, CLEAN],
        "filter": {},
        "projection": ["event_type"],
        "evidence": {"mode": "full"},
    }
    asked = normalise(query, query_id_if_missing="h07")
    result = answer(home, asked, checkpoint, hub, EngineLimits())
    assert result.outcome.event_count == 3 * GOOD
    assert sum(result.outcome.unread.values()) == BAD


def test_h07_replay_gives_each_as_what_it_is(world: World, tmp_path: Path) -> None:
    settings, path = world.z1, tmp_path / "replay.jsonl"
    with world.acting(settings, settings.bridge) as reader:
        checkpoint = latest_recorder_checkpoint(reader.meet(), None)
        assert checkpoint is not None
        job = Job(
            source=HubSource(reader),
            requested=lambda _: by_place(world.bad.stream, 1, LAST, with_proofs=True),
            latest=lambda: checkpoint,
        )
        done = job.to_file(path, form_named("jsonl"), resume=False)
    assert done.kinds == {"event": 2 * GOOD, "other": BAD}
    items = [json.loads(line) for line in path.read_text().splitlines()]
    details = [item["detail"] for item in items if item["kind"] == "other"]
    assert any("zero bytes as padding" in detail for detail in details)
    checked = check_file(path, world.online.identity.hub_id)
    assert checked.proven == LAST


def test_h07_stream_shows_them_and_goes_on(world: World, run_veen: Callable[..., Any]) -> None:
    result = run_veen(
        "stream", "--json", "--hub", world.online.hub.url,
        "--client", str(world.online.folder / "bridge"), "--stream", world.bad.stream,
        "--to", str(LAST),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    items = [json.loads(line) for line in result.stdout.splitlines()]
    assert [item["opened"] for item in items].count(False) == len(poison.UNOPENABLE)
    reasons = {item["stream_seq"]: item["reason"] for item in items if item.get("reason")}
    assert list(reasons) == [GOOD + 1, GOOD + 3, GOOD + 4]


def test_h07_what_the_auditor_itself_wrote_is_never_left_out(world: World) -> None:
    event = LedgerRebuilt(operator="h07", streams=0, bundles=0, detail="sealed to another zone")
    stream, settings = "export/history/162", world.z1
    author = world.record(stream, event, world.card(world.offline, "reader"))
    with world.acting(settings, settings.bridge) as reader:
        with pytest.raises(AuditUnread, match="stream_seq 1"):
            list(read_log(reader, stream, author=author))
        # Nor is a log passed over of which not one entry opens: the reader may lack the key.
        with pytest.raises(AuditUnread, match="stream_seq 1"):
            list(read_log(reader, stream))


def test_h07_one_stream_that_fails_does_not_end_the_export_of_another(
    world: World, carried: list[ExportedCarrier]
) -> None:
    """The bad one comes first, and by its audit log the hub was put back since."""
    (known, *_) = [
        audit
        for audit in world.audits()
        if isinstance(audit, ExportSuccess) and audit.stream == world.bad.stream
    ]
    world.record(ONLINE_LOG, replace(known, to_seq=10**6), world.card(world.online, "bridge"))
    world.clean.record("config.changed", [{"n": 3}])
    done: list[ExportedCarrier] = []
    with pytest.raises(RolledBack, match=f"{world.bad.stream} was exported up to 1000000"):
        done.extend(world.export(world.folder / "another medium"))
    assert {item.entry.stream for item in done} == {CLEAN, ONLINE_LOG}


def test_h07_an_audit_finds_nothing_wrong_with_them(
    world: World, run_veen: Callable[..., Any]
) -> None:
    """What a hub has accepted is no fault of the log, and no reason not to start again."""
    hub = world.online.hub
    assert hub.stop() == 0
    result = run_veen(
        "audit", "log", "--json", "--data-dir", str(hub.data), "--hub-identity", str(hub.data)
    )
    assert result.returncode == 0, result.stdout + result.stderr
    hub.start()
