"""What the routes that are polled cost with many streams: health, metrics, the list of streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from hub.admission import Gate, VerifiedMsg
from hub.api.app import create_app
from hub.sequencer.committer import Committer
from hub.settings import HubSettings
from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.index import Index
from hub.storage.log import HubLog
from support.hub.counted import counted_calls, scans, traced
from support.hub.driven_hub import a_key, put_back_index, randomness
from veen.digest import h
from veen.label import DEFAULT_PROFILE, derive_label, routing_key
from veen.limits import Limits
from veen.log.entry import StreamRecord
from veen.msg import Msg

NOW = 1_900_000_000
FEW, MANY = 20, 400


def a_stream(number: int) -> StreamRecord:
    return StreamRecord(name=f"record/{number:04d}", profile=DEFAULT_PROFILE)


@contextmanager
def committing(datadir: DataDir) -> Iterator[Committer]:
    lock = DataDirLock(datadir)
    keys = identity.load_or_create(datadir, randomness, NOW)
    log = HubLog(datadir, keys, Limits(), ())
    try:
        yield Committer(log, Gate(False, frozenset()))
    finally:
        log.close()
        lock.release()


def grow(datadir: DataDir, streams: range) -> None:
    """Register streams and write one message to all but the last of them."""
    with committing(datadir) as committer:
        routing = routing_key(committer.log.keys.hub_id)
        for number in streams:
            committer.register(a_stream(number), NOW)
        client, ciphertext = a_key("client"), bytes(40)
        messages = [
            Msg(
                profile_id=DEFAULT_PROFILE.profile_id(),
                label=derive_label(routing, a_stream(number).stream_id(), 0),
                client_id=client.public, client_seq=1, prev_ack=0, auth_ref=None,
                ct_hash=h(ciphertext), ciphertext=ciphertext,
            ).signed(client)
            for number in streams[:-1]
        ]  # fmt: skip
        outcomes = committer.commit([VerifiedMsg.of(msg) for msg in messages], NOW + 1)
        assert all(isinstance(outcome, bytes) for outcome in outcomes)


def edge(datadir: DataDir) -> FlaskClient:
    settings = HubSettings(admission="open", reads="open")
    return create_app(settings, datadir).test_client()


@pytest.fixture(scope="module")
def few_and_many(tmp_path_factory: pytest.TempPathFactory) -> tuple[DataDir, DataDir]:
    directories = []
    for count in (FEW, MANY):
        datadir = DataDir(tmp_path_factory.mktemp("hub") / "data")
        datadir.create()
        grow(datadir, range(count))
        directories.append(datadir)
    return directories[0], directories[1]


def listed(http: FlaskClient) -> list[Any]:
    answer: Any = http.get("/tooling/streams").json
    return list(answer["streams"])


def warm(datadir: DataDir, path: str) -> FlaskClient:
    http = edge(datadir)
    assert http.get(path).status_code == 200
    return http


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_health_and_metrics_cost_the_same_for_any_number_of_labels(
    few_and_many: tuple[DataDir, DataDir], path: str
) -> None:
    small, large = (warm(datadir, path) for datadir in few_and_many)
    few, many = (counted_calls(partial(http.get, path)) for http in (small, large))
    assert many <= few + 40


def test_the_list_of_streams_costs_the_same_for_each(
    few_and_many: tuple[DataDir, DataDir],
) -> None:
    costs = []
    for datadir in few_and_many:
        http = warm(datadir, "/tooling/streams")
        costs.append(counted_calls(partial(http.get, "/tooling/streams")))
        assert len(listed(http)) in (FEW, MANY)
    few, many = costs
    assert many - few <= (MANY - FEW) * few / FEW
    assert (many - few) / (MANY - FEW) < 250


def test_the_list_of_streams_is_what_a_search_for_each_gives(
    few_and_many: tuple[DataDir, DataDir],
) -> None:
    with closing(Index(few_and_many[0].index, writable=False)) as index:
        rows = index.labels()
        streams = listed(edge(few_and_many[0]))
        assert [stream["name"] for stream in streams] == [a_stream(n).name for n in range(FEW)]
        for number, stream in enumerate(streams):
            labels = [row for row in rows if row.stream_id == a_stream(number).stream_id()]
            assert labels == index.labels_of(a_stream(number).stream_id())
            shown = [(item["label"], item["last_stream_seq"]) for item in stream["labels"]]
            assert shown == [(row.label.hex(), row.head_seq) for row in labels]


def test_the_latest_label_and_their_number_are_those_of_a_scan(tmp_path: Path) -> None:
    datadir = DataDir(tmp_path / "data")
    datadir.create()
    grow(datadir, range(5))
    with closing(Index(datadir.index, writable=True)) as index:
        index.add_label(bytes(32), None, 0, NOW)
        rows = [row for row in index.labels() if row.head_seq]
        latest = max(rows, key=lambda row: (row.head_ts, row.label_no))
        assert (index.latest_label(), index.count_labels()) == (latest, len(rows))
        index.move_head(rows[1].label_no, 1, NOW + 5)
        assert index.latest_label() == rows[1]._replace(head_ts=NOW + 5)


def test_an_index_without_entries_has_no_latest_label(tmp_path: Path) -> None:
    with closing(Index(tmp_path / "index.sqlite", writable=True)) as index:
        index.create(bytes(32))
        assert (index.latest_label(), index.count_labels()) == (None, 0)
        index.add_label(bytes(32), None, 0, NOW)
        assert (index.latest_label(), index.count_labels()) == (None, 0)


@pytest.mark.parametrize("call", ["latest_label", "count_labels"])
def test_no_statement_scans_the_labels(few_and_many: tuple[DataDir, DataDir], call: str) -> None:
    with closing(Index(few_and_many[1].index, writable=False)) as index:
        with traced(index._db) as statements:
            getattr(index, call)()
        assert statements
        plans = [scan for statement in statements for scan in scans(index._db, statement)]
        assert [scan for scan in plans if "unwritten" not in scan] == []


def test_a_label_of_a_stream_that_has_no_name_is_looked_up_by_its_key(
    few_and_many: tuple[DataDir, DataDir],
) -> None:
    http: Any = edge(few_and_many[1])
    names = http.application.extensions["veen"].names
    with traced(names._reader.index._db) as statements:
        assert names.known(bytes(32)) is None
        assert names.known(a_stream(7).stream_id()) == a_stream(7)
        assert names.known(a_stream(7).stream_id()) == a_stream(7)
    assert len(statements) == 2
    assert [scan for item in statements for scan in scans(names._reader.index._db, item)] == []


def test_an_index_of_version_3_gets_the_indexes(tmp_path: Path) -> None:
    datadir = DataDir(tmp_path / "data")
    datadir.create()
    grow(datadir, range(3))
    put_back_index(datadir, 3)
    before = edge(datadir).get("/healthz").json
    grow(datadir, range(3, 5))
    assert edge(datadir).get("/healthz").json != before
    with closing(Index(datadir.index, writable=False)) as index:
        rows = index._db.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
        assert {("by_stream",), ("by_head",), ("unwritten",)} <= set(rows)
