"""A query of the other zone run again here: the same digest, or the range that is missing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge import connect
from bridge.settings import ReaderKeys
from recorder.index import imports, rebuild
from recorder.index.follower import BatchOpener, Follower, opening
from recorder.index.imports import EXCLUDED, ImportedFollower, NotOpened
from recorder.index.reader import NotReached, status
from recorder.index.rebuild import Compared
from recorder.index.tables import IndexHome
from recorder.index.writer import writing
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import ResultDigest
from recorder.query.evidence import VerifiedStream, receipted
from recorder.query.execute import digest_of, run, searched, span_of
from recorder.service.rerun import Beyond, MissingPlaces, ReplayVerdict, read_beyond, replay
from support.bridge import bridge_world, importing_zone
from support.hub.hub_process import hub_in
from veen.errors import Malformed, Untrusted
from veen.events import IMPORT_SCHEMA as IMPORTED
from veen.keystore.directory import ClientDir
from veen.system.environment import no_progress

LAST = 12


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with hub_in(tmp_path_factory.mktemp("z2") / "hub") as result:
        yield result


def asked_in_z1(zone: Any, identity: Any) -> tuple[Descriptor, ResultDigest]:
    """A query over all events of the world, as the other zone's service answers it."""
    stream, checkpoint = zone.world.stream, zone.world.checkpoint(LAST)
    query = {
        "version": 1,
        "scope": [stream],
        "filter": {},
        "projection": ["subject_id", "event_type"],
        "evidence": {"mode": "full"},
    }
    descriptor = normalise(query, query_id_if_missing="q-1")
    entries = [
        receipted(event.payload, event.receipt, event.body_key, VerifiedStream(stream, identity))
        for event in zone.world.events[:LAST]
    ]
    span = span_of(descriptor.filter, LAST, lambda seq: entries[seq - 1].hub_ts)
    outcome = run(descriptor, entries, checkpoint.log_root)
    assert outcome.event_count == LAST
    looked = searched(descriptor, checkpoint, {stream: span}, outcome.unread)
    digest = digest_of(
        descriptor,
        outcome,
        result_id="r-1",
        executed_at_ms=1_700_000_000_000,
        checkpoint=checkpoint,
        searched=looked,
    )
    return descriptor, digest


def indexed(zone: Any, home: IndexHome, identity: Any) -> int:
    hub_id = zone.hub.client().hub_id
    with (
        zone.reader() as reader,
        home.locked(),
        writing(rebuild.create(home, hub_id)) as writer,
    ):
        hubs = {identity.hub_id: identity}
        follower = ImportedFollower(reader, writer, hubs, frozenset([zone.target]))
        return follower.round()


def replayed(zone: Any, home: IndexHome, identity: Any) -> ReplayVerdict:
    def beyond() -> Beyond:
        with zone.reader() as reader:
            return read_beyond(reader, home)

    descriptor, digest = asked_in_z1(zone, identity)
    return replay(home, descriptor, digest, zone.world.checkpoint(LAST), identity, beyond)


def test_q1_replays_to_the_same_digest_or_names_what_was_withheld(hub: Any, tmp_path: Path) -> None:
    zone = importing_zone.Zone(tmp_path / "zone", hub, "index")
    identity, home = bridge_world.IDENTITY, IndexHome(tmp_path / "index")
    media = [zone.medium(1, 5), zone.medium(6, 9), zone.medium(10, LAST)]
    assert zone.states(media[0]) == ["imported"]
    (behind,) = zone.run(media[2]).outcomes
    assert behind.bundle_id is not None
    zone.run(accepted=(behind.bundle_id.hex(),), reason="the middle is on its way")
    assert len(zone.imported()) == 8
    subscribed(zone, home, identity)
    assert indexed(zone, home, identity) == 5
    verdict = replayed(zone, home, identity)
    assert not verdict.matches
    assert verdict.missing == (MissingPlaces(zone.world.stream, 6, 9),)
    unlooked = replay(home, *asked_in_z1(zone, identity), zone.world.checkpoint(LAST), identity)
    assert "was not looked at" in unlooked.detail
    assert unlooked.missing == (MissingPlaces(zone.world.stream, 6, LAST),)
    assert zone.states(media[1]) == ["imported"]
    with pytest.raises(NotReached, match="not indexed yet"):
        replayed(zone, home, identity)
    assert indexed(zone, home, identity) == 7
    assert indexed(zone, home, identity) == 0
    assert replayed(zone, home, identity).matches


def test_what_the_policy_keeps_out_makes_the_digest_differ(hub: Any, tmp_path: Path) -> None:
    zone = importing_zone.Zone(tmp_path / "zone", hub, "kept-out")
    identity, home = bridge_world.IDENTITY, IndexHome(tmp_path / "index")
    zone.write_settings(
        '[[exclusions]]\nprefix = "export/"\nevent_type = "config.changed"\nreason = "no"\n'
    )
    assert zone.states(zone.medium(1, LAST)) == ["imported"]
    assert indexed(zone, home, identity) == LAST
    with writing(home.current()) as writer:
        faults = [item for (item,) in writer.db.execute("SELECT fault FROM events")]
    assert faults == [EXCLUDED] * 2 * LAST  # at both of its places
    assert not replayed(zone, home, identity).matches


@contextmanager
def opened(reader: Any) -> Iterator[BatchOpener]:
    with opening(reader.session.identity.readers(), reader.session.limits, 0) as openers:
        yield openers


def subscribed(zone: Any, home: IndexHome, *identities: Any) -> None:
    hubs = {identity.hub_id: identity for identity in identities}
    imports.store_import(home, imports.read_import(home).joined([zone.target], hubs))


def test_a_follower_takes_imports_up_and_a_rebuild_does_not_lose_them(
    hub: Any, tmp_path: Path
) -> None:
    zone = importing_zone.Zone(tmp_path / "zone", hub, "followed")
    identity, home = bridge_world.IDENTITY, IndexHome(tmp_path / "index")
    subscribed(zone, home, identity)
    with zone.reader() as reader, home.locked(), opened(reader) as opener:
        generation = rebuild.create(home, reader.meet().hub.hub_id)
        with writing(generation) as writer:
            follower = Follower(reader, writer, opener)
            assert follower.round() == 0
    assert zone.states(zone.medium(1, LAST)) == ["imported"]
    with zone.reader() as reader, home.locked(), opened(reader) as opener:
        with writing(home.current()) as writer:
            follower = Follower(reader, writer, opener)
            assert [follower.round(), follower.round()] == [LAST, 0]
        assert replayed(zone, home, identity).matches
        result = rebuild.rebuild(home, reader, opener, None, no_progress)
        assert result.compared == Compared(2 * LAST, [])
        assert replayed(zone, home, identity).matches
        meddled(home)
        compared = rebuild.verify(home, reader, opener, None, no_progress)
        assert {(difference.stream, difference.seq) for difference in compared.differences} == {
            (zone.world.stream, 3), (zone.target, 3),
        }  # fmt: skip
    (row,) = (stream for stream in status(home, 0).streams if stream.stream == zone.world.stream)
    assert (row.indexed, row.head, row.entries) == (LAST, LAST, 0)


def meddled(home: IndexHome) -> None:
    with writing(home.current()) as writer:
        writer.db.execute("UPDATE events SET event_type = 'other' WHERE place & 0xff = 3")


def test_an_import_stream_of_a_hub_that_is_not_pinned_stops_itself_alone(
    hub: Any, tmp_path: Path
) -> None:
    zone = importing_zone.Zone(tmp_path / "zone", hub, "unpinned")
    identity, home = bridge_world.IDENTITY, IndexHome(tmp_path / "index")
    assert zone.states(zone.medium(1, 3)) == ["imported"]
    subscribed(zone, home)
    with (
        zone.reader() as reader,
        home.locked(),
        opened(reader) as opener,
        writing(rebuild.create(home, reader.meet().hub.hub_id)) as writer,
    ):
        follower = Follower(reader, writer, opener)
        assert [follower.round(), follower.round()] == [0, 0]
        assert "is not pinned" in str(status(home, 0).trouble)
        with pytest.raises(Untrusted, match="is not pinned"):
            rebuild.rebuild(home, reader, opener, None, no_progress)
        subscribed(zone, home, identity)
        assert follower.round() == 3
        assert status(home, 0).trouble is None


def test_a_list_of_imports_that_is_damaged_is_refused_and_not_forgotten(tmp_path: Path) -> None:
    home = IndexHome(tmp_path / "index")
    imports.store_import(home, imports.Imports(streams=("import/a",)))
    home.imports.write_bytes(home.imports.read_bytes()[:-1])
    with pytest.raises(Malformed, match="veen recorder index imports"):
        imports.read_import(home)


def written_by_the_bridge(zone: Any, body: bytes, **options: Any) -> None:
    """A message in the import stream by the bridge's own identity."""
    written_by(zone, zone.settings.bridge, body, **options)


def written_by(zone: Any, who: Any, body: bytes, **options: Any) -> None:
    with connect.open_bridge_client(zone.settings.hub, who, runtime=zone.around()) as client:
        client.send(zone.target, body, **options)


def import_rows(home: IndexHome, zone: Any) -> list[tuple[int, str | None]]:
    """Number and fault of each row that stands under the import stream."""
    query = (
        "SELECT place & 0xffffffff, fault FROM events JOIN streams USING (stream_no) "
        "WHERE name = ? ORDER BY place"
    )
    with writing(home.current()) as writer:
        return [(seq, fault) for seq, fault in writer.db.execute(query, (zone.target,))]


def test_h16_imports_that_no_key_opens_are_trouble_and_keep_the_position(
    hub: Any, tmp_path: Path
) -> None:
    zone = importing_zone.Zone(tmp_path / "zone", hub, "closed")
    identity, home = bridge_world.IDENTITY, IndexHome(tmp_path / "index")
    assert zone.states(zone.medium(1, 3)) == ["imported"]
    subscribed(zone, home, identity)
    service, settings = tmp_path / "service", zone.settings
    ClientDir(service).create(now=int(time.time()), random=os.urandom, passphrase=None)
    assert settings.reader is not None
    own = replace(settings.reader, client=service)

    def round_of(keys: ReaderKeys | None) -> int:
        with (
            connect.open_bridge_client(
                settings.hub, own, runtime=zone.around(), keys=keys
            ) as client,
            home.locked(),
            opened(client) as opener,
            writing(rebuild.create(home, client.meet().hub.hub_id)) as writer,
        ):
            return Follower(client, writer, opener).round()

    assert round_of(None) == 0
    result = status(home, 0)
    assert f"{zone.target}, stream_seq 1: no key of this reader opens it" in str(result.trouble)
    (row,) = (stream for stream in result.streams if stream.stream == zone.target)
    assert row.indexed == 0
    assert round_of(ReaderKeys(zone.reader_dir)) == 3
    assert status(home, 0).trouble is None
    assert import_rows(home, zone) == [(1, None), (2, None), (3, None)]


def test_h16_a_malformed_message_is_counted_and_holds_nothing_up(hub: Any, tmp_path: Path) -> None:
    zone = importing_zone.Zone(tmp_path / "zone", hub, "malformed")
    identity, home = bridge_world.IDENTITY, IndexHome(tmp_path / "index")
    assert zone.states(zone.medium(1, 2)) == ["imported"]
    to = {"recipient": ClientDir(zone.reader_dir).read_card().recipient(int(time.time()))}
    written_by_the_bridge(zone, b"\xff", schema=IMPORTED, **to)
    written_by_the_bridge(zone, b"{}", schema=bytes(32), **to)
    assert indexed(zone, home, identity) == 2
    assert import_rows(home, zone) == [
        (1, None), (2, None), (3, "MALFORMED"), (4, "OTHER_SCHEMA"),
    ]  # fmt: skip
    (row,) = (stream for stream in status(home, 0).streams if stream.stream == zone.target)
    assert (row.indexed, row.unread) == (4, 2)


def test_h16_half_a_bundle_is_not_indexed_under_the_import_stream(hub: Any, tmp_path: Path) -> None:
    zone = importing_zone.Zone(tmp_path / "zone", hub, "half")
    identity, home = bridge_world.IDENTITY, IndexHome(tmp_path / "index")
    assert zone.states(zone.medium(1, 3)) == ["imported"]
    event = zone.imported()[-1]
    half = replace(event, bundle_id=bytes(32), position=0, count=2)
    to = {"recipient": ClientDir(zone.reader_dir).read_card().recipient(int(time.time()))}
    written_by_the_bridge(zone, half.encode(), schema=IMPORTED, **to)
    assert indexed(zone, home, identity) == 3
    assert [seq for seq, _ in import_rows(home, zone)] == [1, 2, 3]


def test_h16_what_somebody_else_has_sealed_is_counted_and_what_the_bridge_has_is_trouble(
    hub: Any, tmp_path: Path
) -> None:
    zone = importing_zone.Zone(tmp_path / "zone", hub, "sealed")
    identity, home = bridge_world.IDENTITY, IndexHome(tmp_path / "index")
    written_by(zone, zone.settings.audit, b"sealed to its own writer")
    assert zone.states(zone.medium(1, 2)) == ["imported"]
    assert indexed(zone, home, identity) == 2
    assert import_rows(home, zone) == [(1, "UNOPENED"), (2, None), (3, None)]
    written_by_the_bridge(zone, b"sealed to the bridge")
    assert zone.states(zone.medium(3, 4)) == ["imported"]
    for _ in range(2):
        with pytest.raises(NotOpened, match="stream_seq 4: no key of this reader opens it"):
            indexed(zone, home, identity)
    assert [seq for seq, _ in import_rows(home, zone)] == [1, 2, 3]
