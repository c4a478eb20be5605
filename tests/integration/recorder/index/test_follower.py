"""The follower: verified reading into an index, and what it does when a hub is down or lies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from recorder.index import rebuild as rebuilding
from recorder.index import tables
from recorder.index.engine import EngineLimits, answer
from recorder.index.follower import opening
from recorder.index.reader import NotReached, snapshot, status
from recorder.index.tables import IndexBusy, IndexHome
from recorder.query.descriptor import normalise
from recorder.stream_map import StrangeProfile
from support.recorder import index_recorded
from veen.client.transport import Fork, RetryPolicy
from veen.errors import Untrusted
from veen.system.environment import no_progress

NOW = 2_000_000_000
IMPATIENT = RetryPolicy(attempts=1, first_sec=0.01, most_sec=0.01, timeout_sec=2)


@pytest.fixture
def home(tmp_path: Path) -> IndexHome:
    return IndexHome(tmp_path / "index")


def a_query(*streams: str) -> Any:
    query = {"scope": list(streams), "filter": {}, "projection": ["*"]}
    return normalise(query | {"evidence": {"mode": "full"}}, query_id_if_missing="q")


def test_follows_streams_and_answers_up_to_a_checkpoint(
    shared_index_hub: Any, open_client: Any, home: IndexHome, tmp_path: Path
) -> None:
    reader, writer = (open_client(shared_index_hub.url, name) for name in ("reader", "writer"))
    first, second, empty = names = ("record/4", "record/5", "record/6")
    index_recorded.record(writer, first, reader, range(50))
    index_recorded.record(writer, second, reader, range(30))
    document = index_recorded.checkpoint(shared_index_hub.url, tmp_path / "admin")
    index_recorded.record(writer, first, reader, range(50, 60))
    assert index_recorded.catch_up(reader, home, requested=frozenset(names)) == 90
    query = a_query(*names)
    result = answer(home, query, document, reader.session.hub, EngineLimits())
    numbers = [row["payload"]["n"] for row in result.outcome.rows if row["stream"] == first]
    assert numbers == list(range(49))
    assert [(item.stream, item.to_seq, item.unread) for item in result.searched] == [
        (first, 50, 1), (second, 30, 1), (empty, 0, 0),
    ]  # fmt: skip
    assert len(result.witnesses) == 78
    with snapshot(home) as held:
        assert held.latest([first]) == document
    detail = status(home, NOW)
    assert (detail.entries, detail.seconds, detail.trouble, detail.checkpoints > 0) == (
        0,
        0,
        None,
        True,
    )
    assert detail.checkpoint == document.checkpoint_id


def test_follows_a_stream_that_is_new_and_tells_its_lag_until_then(
    make_index_hub: Any, open_client: Any, home: IndexHome
) -> None:
    hub = make_index_hub()
    index_recorded.settle(hub, (index_recorded.FIRST, "other/stream"))
    hub.start()
    reader, writer = open_client(hub.url, "reader"), open_client(hub.url, "writer")
    index_recorded.record(writer, index_recorded.FIRST, reader, range(10))
    assert index_recorded.catch_up(reader, home) == 10
    hub.stop()
    index_recorded.settle(hub, (index_recorded.FIRST, index_recorded.SECOND, "other/stream"))
    hub.start()
    index_recorded.record(writer, index_recorded.SECOND, reader, range(20))
    index_recorded.record(writer, index_recorded.FIRST, reader, range(10, 15))
    with index_recorded.following(reader, home) as follower:
        follower._meet()
        follower._note_heads(reader.session.api.streams())
        lags = {stream.stream: stream.entries for stream in status(home, NOW).streams}
        assert lags == {index_recorded.FIRST: 5, index_recorded.SECOND: 20}
        assert status(home, NOW).entries == 25
        assert follower.round() == 25
    assert status(home, NOW).entries == 0


def test_waits_for_a_hub_that_is_down_and_says_so(
    make_index_hub: Any, open_client: Any, home: IndexHome, tmp_path: Path
) -> None:
    hub = make_index_hub().start()
    reader, writer = open_client(hub.url, "reader", retry_policy=IMPATIENT), open_client(
        hub.url, "writer"
    )  # fmt: skip
    index_recorded.record(writer, index_recorded.FIRST, reader, range(10))
    assert index_recorded.catch_up(reader, home) == 10
    hub.stop()
    rounds, messages = 0, []

    def is_over() -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            messages.append(status(home, NOW).trouble)
            hub.start()
            index_recorded.record(writer, index_recorded.FIRST, reader, range(10, 20))
        return bool(messages) and status(home, NOW).streams[1].indexed == 20

    with index_recorded.following(reader, home) as follower:
        follower.run(is_over)
    assert messages[0] is not None
    assert messages[0].startswith("waiting: ")
    assert status(home, NOW).trouble is None


def test_stops_at_a_hub_that_signs_another_history_and_keeps_the_evidence(
    make_index_hub: Any, open_client: Any, home: IndexHome, tmp_path: Path
) -> None:
    hub = make_index_hub().start()
    reader, writer = open_client(hub.url, "reader"), open_client(hub.url, "writer")
    index_recorded.record(writer, index_recorded.FIRST, reader, range(10))
    hub.stop()
    shutil.copytree(hub.data, tmp_path / "copy")
    hub.start()
    index_recorded.record(writer, index_recorded.FIRST, reader, range(10, 20))
    index_recorded.catch_up(reader, home)
    before = index_recorded.dump(home)
    hub.stop()
    index_recorded.put_back(hub, tmp_path / "copy")
    hub.start()
    index_recorded.record(
        open_client(hub.url, "another"), index_recorded.FIRST, reader, range(100, 130)
    )
    with index_recorded.following(reader, home) as follower, pytest.raises(Fork, match="evidence"):
        follower.run(lambda: False)
    assert index_recorded.dump(home) == before
    trouble = status(home, NOW).trouble
    assert trouble is not None
    assert trouble.startswith("stopped: ")
    assert list((tmp_path / "reader" / "evidence").iterdir())


def test_refuses_an_index_of_another_hub(
    shared_index_hub: Any, open_client: Any, home: IndexHome
) -> None:
    with home.locked():
        rebuilding.create(home, bytes(32))
    with (
        index_recorded.following(open_client(shared_index_hub.url, "reader"), home) as follower,
        pytest.raises(Untrusted, match="an index of its own"),
    ):
        follower.round()


def test_refuses_to_write_beside_another_writer(home: IndexHome) -> None:
    with home.locked(), pytest.raises(IndexBusy, match="stop it first"), home.locked():
        pass


def test_opening_beside_gives_the_same_index(
    shared_index_hub: Any, open_client: Any, home: IndexHome, tmp_path: Path
) -> None:
    reader, writer = (open_client(shared_index_hub.url, name) for name in ("reader", "writer"))
    index_recorded.record(writer, "record/1", reader, range(35))
    index_recorded.catch_up(reader, home, requested=frozenset({"record/1"}))
    beside = IndexHome(tmp_path / "beside")
    index_recorded.catch_up(reader, beside, 2, requested=frozenset({"record/1"}))
    assert index_recorded.dump(home) == index_recorded.dump(beside)


def test_rebuilds_beside_and_says_whether_it_agreed(
    shared_index_hub: Any, open_client: Any, home: IndexHome
) -> None:
    reader, writer = (open_client(shared_index_hub.url, name) for name in ("reader", "writer"))
    expected, session = frozenset({"record/2"}), reader.session
    index_recorded.record(writer, "record/2", reader, range(30))
    index_recorded.catch_up(reader, home, requested=expected)
    with opening(session.identity.readers(), session.limits, 0) as opener:
        first = home.current()
        clean = rebuilding.verify(home, reader, opener, expected, no_progress)
        assert (clean.entries, clean.differences, home.current()) == (30, [], first)
        with tables.connected(first, writable=True) as db:
            db.execute("DELETE FROM events WHERE place = (SELECT max(place) - 3 FROM events)")
        result = rebuilding.rebuild(home, reader, opener, expected, no_progress)
        assert result.compared is not None
        assert [
            (difference.stream, difference.seq) for difference in result.compared.differences
        ] == [("record/2", 27)]
        assert (home.current() == first, first.root.exists()) == (False, False)
        again = rebuilding.rebuild(home, reader, opener, expected, no_progress)
    assert again.compared is not None
    assert (again.entries, again.compared.differences) == (30, [])


def test_does_not_speak_of_a_checkpoint_it_has_not_reached(
    shared_index_hub: Any, open_client: Any, home: IndexHome, tmp_path: Path
) -> None:
    reader, writer = (open_client(shared_index_hub.url, name) for name in ("reader", "writer"))
    expected = frozenset({"record/3"})
    index_recorded.record(writer, "record/3", reader, range(10))
    index_recorded.catch_up(reader, home, requested=expected)
    index_recorded.record(writer, "record/3", reader, range(10, 20))
    document = index_recorded.checkpoint(shared_index_hub.url, tmp_path / "admin")
    with pytest.raises(NotReached):
        answer(home, a_query("record/3"), document, reader.session.hub, EngineLimits())
    index_recorded.catch_up(reader, home, requested=expected)
    answer(home, a_query("record/3"), document, reader.session.hub, EngineLimits())


def test_a_stream_with_epochs_is_refused_at_the_start(
    make_index_hub: Any, open_client: Any, home: IndexHome
) -> None:
    hub = make_index_hub()
    text = (hub.data.parent / "hub.toml").read_text()
    (hub.data.parent / "hub.toml").write_text(text + "epoch_sec = 86400\n")
    hub.start()
    detail = f"stream {index_recorded.EMPTY}: expected epoch_sec = 0 and pad_block = 0, got 86400"
    with (
        index_recorded.following(open_client(hub.url, "reader"), home) as follower,
        pytest.raises(StrangeProfile, match=detail),
    ):
        follower.run(lambda: False)
    assert detail in (status(home, NOW).trouble or "")


def test_a_stream_with_epochs_that_comes_later_does_not_hold_up_the_others(
    make_index_hub: Any, open_client: Any, home: IndexHome, tmp_path: Path
) -> None:
    hub = make_index_hub()
    text = (hub.data.parent / "hub.toml").read_text()
    known = '[[streams]]\nname = "other/rolling"\nepoch_sec = 3600\n'
    (hub.data.parent / "hub.toml").write_text(text + known)
    hub.start()
    writer, reader = open_client(hub.url, "writer"), open_client(hub.url, "reader")
    with index_recorded.following(reader, home) as follower:
        follower.round()
        index_recorded.register(hub.url, tmp_path / "admin", name="record/rolling", epoch_sec=3_600)
        index_recorded.record(writer, index_recorded.FIRST, reader, range(10))
        assert follower.round() == 10
    assert {stream.stream for stream in status(home, NOW).streams} == {
        index_recorded.FIRST,
        index_recorded.SECOND,
        index_recorded.EMPTY,
    }
