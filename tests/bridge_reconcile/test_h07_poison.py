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

import index_recorded
import poison
import pytest
from hub_process import hub_in
from reconcile_real_history import RealHistory
from reconcile_real_sides import AROUND, HASTY, Side, hub_toml

from bridge.audit import AuditUnread, AuditWriter, read_log
from bridge.audit_events import AuditEvent, ExportSuccess, LedgerRebuilt
from bridge.carrier.check import Means
from bridge.export_delivery import Media
from bridge.export_run import Exported
from bridge.export_setup import Run, opened
from bridge.exporter import RolledBack
from bridge.identities import open_client
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import Order, run_import
from bridge.reconcile.collect import collect_offline
from bridge.reconcile.collect_carriers import Carried
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.report_text import text
from bridge.reconcile.stream_report import Class
from bridge.settings import IdentitySettings, Settings
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG, default_target
from bridge.trust import TrustStore
from recorder.index import imports
from recorder.index.engine import EngineLimits, answer
from recorder.index.home import IndexHome
from recorder.index.imported import ImportedFollower
from recorder.index.rebuild import create
from recorder.index.writer import writing
from recorder.query.descriptor import normalise
from recorder.replay.check import check_file
from recorder.replay.job import Job
from recorder.replay.output import form_named
from recorder.replay.source import HubSource
from recorder.replay.wanted import by_place
from recorder.service.replay_beyond import read_beyond
from veen.client import recorder_checkpoints
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
    def z1(self) -> Settings:
        return self.online.settings([{"source": one} for one in (self.bad.stream, CLEAN)])

    @property
    def z2(self) -> Settings:
        hub_id = self.online.identity.hub_id.hex()
        sources = (self.bad.stream, CLEAN, ONLINE_LOG)
        return self.offline.settings(
            [{"source": one, "hub_id": hub_id} for one in sources],
            reader={"client": "reader"},
            trust=str(self.bad.folder / "trust"),
            **{"import": {"state": str(self.folder / "state")}},
        )

    def acting(self, settings: Settings, identity: IdentitySettings | None) -> Client:
        assert identity is not None
        return open_client(settings.hub, identity, surroundings=AROUND, patience=HASTY)

    def export(self, medium: Path) -> Iterator[Exported]:
        medium.mkdir()
        run = Run(
            media=Media(roots=(medium,), medium_id=str(medium)),
            operator="h07",
            surroundings=AROUND,
            now_ms=lambda: time.time_ns() // 1_000_000,
            patience=HASTY,
        )
        with opened(self.z1, run) as exporter:
            yield from exporter.export()

    def audits(self) -> list[AuditEvent]:
        settings = self.z1
        with self.acting(settings, settings.bridge) as reader:
            return [one.event for one in read_log(reader, ONLINE_LOG)]

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
        found = World(*sides, bad, RealHistory(161, *sides, folder / "clean"), folder)
        found.plant(found.online, ONLINE_LOG, "bridge")
        bad.record("config.changed", [{"n": one} for one in range(GOOD)])
        found.plant(found.online, bad.stream, "bridge")
        bad.record("config.changed", [{"n": one} for one in range(GOOD)])
        found.clean.record("config.changed", [{"n": one} for one in range(GOOD)])
        yield found


@pytest.fixture(scope="module")
def carried(world: World) -> list[Exported]:
    """All of Z1, in the very first export."""
    return list(world.export(world.folder / "medium"))


@pytest.fixture(scope="module")
def imported(world: World, carried: list[Exported]) -> Settings:
    """All of it in Z2, where an import stream and the audit log are poisoned as well."""
    for stream in (default_target(world.bad.stream), OFFLINE_LOG):
        world.plant(world.offline, stream, "reader")
    order = Order(operator="h07", media=(world.folder / "medium",))
    found = run_import(world.z2, order, AROUND, patience=HASTY)
    assert found.pending is None
    assert [one.state.value for one in found.outcomes] == ["imported"] * len(carried)
    return world.z2


def test_h07_export_carries_what_cannot_be_opened_and_names_it(
    world: World, carried: list[Exported]
) -> None:
    ends = {one.entry.stream: one.entry.to_seq for one in carried}
    assert (ends[world.bad.stream], ends[CLEAN]) == (LAST, GOOD)
    found = [one.unopened for one in carried if one.entry.stream == world.bad.stream]
    assert sum(one.count for one in found) == len(poison.UNOPENABLE)
    assert sum(one.bad for one in found) == NO_KEY_OPENS
    named = dict(pair for one in found for pair in one.first)
    assert list(named) == [GOOD + 1, GOOD + 3, GOOD + 4]
    assert named[GOOD + 1] == "padding that is not zero"
    assert named[GOOD + 4] == "cap_ref names another capability than auth_ref"


def test_h07_the_log_of_an_audit_is_read_past_them(
    world: World, carried: list[Exported], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        kinds = [one.KIND for one in world.audits()]
    assert kinds == ["export.begin", "export.success"] * len(carried)
    assert len([one for one in caplog.records if ONLINE_LOG in one.message]) == BAD


def test_h07_import_and_reconcile_take_them_as_alarms_and_nothing_else(
    world: World, imported: Settings, tmp_path: Path
) -> None:
    means = Means(trust=TrustStore.read(imported.trust), scratch=tmp_path)
    with world.acting(imported, imported.reader) as reader:
        report = reconcile(collect_offline(imported, reader, Carried(means)).facts)
    (found,) = (one for one in report.streams if one.stream == world.bad.stream)
    assert found.classes[Class.IMPORTED] == Ranges([(1, LAST)])
    target = default_target(world.bad.stream)
    assert {(one.target, one.seq) for one in report.strangers} == {
        (stream, seq) for stream in (target, OFFLINE_LOG) for seq in range(1, BAD + 1)
    }
    assert f"{OFFLINE_LOG} 1 is no entry" in text(report)


def test_h07_the_ledger_is_made_again_past_them(world: World, imported: Settings) -> None:
    found = rebuild_ledger(imported, Order(operator="h07", media=()), AROUND, HASTY)
    assert found.events == LAST + GOOD


def test_h07_the_index_of_imports_goes_past_them(
    world: World, imported: Settings, tmp_path: Path
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
            one.name: (one.position, one.unread)
            for one in writer.streams()
            if one.hub_id == hub.hub_id
        }
    assert held == {world.bad.stream: (LAST, BAD), CLEAN: (GOOD, 0)}
    subscribed = imports.Imports().joined(targets, {hub.hub_id: hub})
    imports.keep(home, subscribed)
    with world.acting(imported, imported.reader) as reader:
        assert read_beyond(reader, home) == {}


def test_h07_index_and_query_count_them(world: World, tmp_path: Path) -> None:
    home, settings = IndexHome(tmp_path / "index"), world.z1
    with world.acting(settings, settings.bridge) as reader:
        wanted = frozenset({world.bad.stream, CLEAN})
        assert index_recorded.catch_up(reader, home, wanted=wanted) == LAST + GOOD
        checkpoint = recorder_checkpoints.latest(reader.meet(), None)
        hub = reader.session.hub
    rows = index_recorded.dump(home)[world.bad.stream][2:]
    faults = [one[4] for one in rows]
    assert faults == [*[None] * GOOD, *["UNOPENED"] * (BAD - 1), "MALFORMED", *[None] * GOOD]
    query = {
        "version": 1,
        "scope": [world.bad.stream, CLEAN],
        "filter": {},
        "projection": ["event_type"],
        "evidence": {"mode": "full"},
    }
    asked = normalise(query, query_id_if_missing="h07")
    found = answer(home, asked, checkpoint, hub, EngineLimits())
    assert found.outcome.event_count == 3 * GOOD
    assert sum(found.outcome.unread.values()) == BAD


def test_h07_replay_gives_each_as_what_it_is(world: World, tmp_path: Path) -> None:
    settings, path = world.z1, tmp_path / "replay.jsonl"
    with world.acting(settings, settings.bridge) as reader:
        checkpoint = recorder_checkpoints.latest(reader.meet(), None)
        job = Job(
            source=HubSource(reader),
            wanted=lambda _: by_place(world.bad.stream, 1, LAST, with_proofs=True),
            latest=lambda: checkpoint,
        )
        done = job.to_file(path, form_named("jsonl"), resume=False)
    assert done.kinds == {"event": 2 * GOOD, "other": BAD}
    items = [json.loads(one) for one in path.read_text().splitlines()]
    details = [one["detail"] for one in items if one["kind"] == "other"]
    assert any("padding that is not zero" in one for one in details)
    checked = check_file(path, world.online.identity.hub_id)
    assert checked.proven == LAST


def test_h07_stream_shows_them_and_goes_on(world: World, veen: Callable[..., Any]) -> None:
    found = veen(
        "stream", "--json", "--hub", world.online.hub.url,
        "--client", str(world.online.folder / "bridge"), "--stream", world.bad.stream,
        "--to", str(LAST),
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    items = [json.loads(one) for one in found.stdout.splitlines()]
    assert [one["opened"] for one in items].count(False) == len(poison.UNOPENABLE)
    reasons = {one["stream_seq"]: one["reason"] for one in items if one.get("reason")}
    assert list(reasons) == [GOOD + 1, GOOD + 3, GOOD + 4]


def test_h07_what_the_auditor_itself_wrote_is_never_left_out(world: World) -> None:
    event = LedgerRebuilt(operator="h07", streams=0, bundles=0, told="sealed to another zone")
    stream, settings = "export/history/162", world.z1
    author = world.record(stream, event, world.card(world.offline, "reader"))
    with world.acting(settings, settings.bridge) as reader:
        with pytest.raises(AuditUnread, match="stream_seq 1"):
            list(read_log(reader, stream, author=author))
        # Nor is a log passed over of which not one entry opens: the reader may lack the key.
        with pytest.raises(AuditUnread, match="stream_seq 1"):
            list(read_log(reader, stream))


def test_h07_one_stream_that_fails_does_not_end_the_export_of_another(
    world: World, carried: list[Exported]
) -> None:
    """The bad one comes first, and by its audit log the hub was put back since."""
    (known, *_) = [
        one
        for one in world.audits()
        if isinstance(one, ExportSuccess) and one.stream == world.bad.stream
    ]
    world.record(ONLINE_LOG, replace(known, to_seq=10**6), world.card(world.online, "bridge"))
    world.clean.record("config.changed", [{"n": 3}])
    done: list[Exported] = []
    with pytest.raises(RolledBack, match=f"{world.bad.stream} was exported up to 1000000"):
        done.extend(world.export(world.folder / "another medium"))
    assert {one.entry.stream for one in done} == {CLEAN, ONLINE_LOG}


def test_h07_an_audit_finds_nothing_wrong_with_them(world: World, veen: Callable[..., Any]) -> None:
    """What a hub has accepted is no fault of the log, and no reason not to start again."""
    hub = world.online.hub
    assert hub.stop() == 0
    found = veen(
        "audit", "log", "--json", "--data-dir", str(hub.data), "--hub-identity", str(hub.data)
    )
    assert found.returncode == 0, found.stdout + found.stderr
    hub.start()
