"""Recorder checkpoints over HTTP: who makes and reads them, and that each follows the last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint
from veen.wire import cbor
from veen.wire.api import RecorderCheckpointRequest, RecorderCheckpointsResponse

PATH = "/tooling/recorder_checkpoint"
PROFILE = bytes(range(32))
NOON = 1_900_000_000


@pytest.fixture
def hub(start_hub: Any) -> Any:
    return start_hub()


def asked(hub: Any, *, profile: bytes = PROFILE, force: bool | None = None) -> Any:
    request = RecorderCheckpointRequest(profile_id=profile, force=force)
    return hub.post(PATH, request, as_="admin")


def make_checkpoint(hub: Any, **more: Any) -> RecorderCheckpoint:
    answer = asked(hub, **more)
    assert answer.status_code == 200, answer.data
    return RecorderCheckpoint.decode(cbor.encode(cbor.decode(answer.data)[2]))


def listed(hub: Any, query: str) -> RecorderCheckpointsResponse:
    accept = "application/cbor"
    answer = hub.get(f"/tooling/recorder_checkpoints{query}", as_="admin", Accept=accept)
    return RecorderCheckpointsResponse.decode(answer.data)


@pytest.mark.parametrize("principal", ["exporter", "producer", "asker"])
def test_refuses_to_make_one_for_who_does_not_manage(hub: Any, principal: str) -> None:
    answer = hub.post(PATH, RecorderCheckpointRequest(profile_id=PROFILE), as_=principal)
    assert answer.status_code == 403
    assert not hub.datadir.recorder_names()


def test_refuses_to_make_one_for_nobody_even_where_reads_are_open(start_hub: Any) -> None:
    hub = start_hub(reads="open")
    assert hub.post(PATH, RecorderCheckpointRequest(profile_id=PROFILE)).status_code == 401
    make_checkpoint(hub)
    assert hub.get(f"{PATH}_latest").status_code == 200


def test_refuses_to_show_them_to_a_producer(hub: Any) -> None:
    make_checkpoint(hub)
    for path in (f"{PATH}_latest", f"{PATH}s"):
        assert hub.get(path).status_code == 401
        assert hub.get(path, as_="producer").status_code == 403
        for principal in ("admin", "exporter", "asker"):
            assert hub.get(path, as_=principal).status_code == 200


@pytest.mark.parametrize(
    "body", [b"", b"\xa0", b"\xa1\x02\x41\x00", b"\xa2\x02\x58\x20" + bytes(32) + b"\x03\x01"]
)
def test_refuses_a_request_that_is_none(hub: Any, body: bytes) -> None:
    assert hub.post(PATH, body, as_="admin").status_code == 400


def test_has_none_at_first(hub: Any) -> None:
    assert hub.get(f"{PATH}_latest", as_="admin").status_code == 404
    assert listed(hub, "").checkpoints == ()


def test_speaks_of_every_product_stream_without_epochs(hub: Any) -> None:
    hub.writer("alice", "record/a").write(1, 3)
    hub.writer("roller", "record/roll")
    result = make_checkpoint(hub)
    result.verify(hub.identity)
    assert set(result.names) == {"record/a", "record/b", "export/x"}
    assert last_seq(result, "record/a") == 3
    empty = result.end("record/b")
    assert empty is not None
    assert (empty.last_seq, empty.mmr_root) == (0, EMPTY_ROOT)
    assert (result.profile_id, result.created_at) == (PROFILE, NOON)


def test_gives_the_same_again_until_a_stream_moves(hub: Any) -> None:
    alice = hub.writer("alice", "record/a")
    alice.write(1, 2)
    first = make_checkpoint(hub)
    hub.set_clock(NOON + 5)
    assert make_checkpoint(hub).encode() == first.encode()
    alice.write(3, 3)
    second = make_checkpoint(hub)
    second.verify_follows(first)
    assert last_seq(second, "record/a") == 3


def test_makes_a_new_one_when_forced_once_time_has_moved(hub: Any) -> None:
    first = make_checkpoint(hub)
    assert make_checkpoint(hub, force=True) == first
    hub.set_clock(NOON + 1)
    second = make_checkpoint(hub, force=True)
    assert (second.ends, second.created_at) == (first.ends, NOON + 1)


def test_makes_a_new_one_for_another_profile(hub: Any) -> None:
    first = make_checkpoint(hub)
    second = make_checkpoint(hub, profile=bytes(32))
    assert (second.profile_id, second.created_at) == (bytes(32), first.created_at + 1)


def test_no_two_have_the_same_time_even_within_a_second(hub: Any) -> None:
    alice = hub.writer("alice", "record/a")
    result = []
    for seq in range(1, 5):
        alice.write(seq, seq)
        result.append(make_checkpoint(hub))
    assert [item.created_at for item in result] == [NOON, NOON + 1, NOON + 2, NOON + 3]
    names = sorted(hub.datadir.recorder_names())
    assert [
        RecorderCheckpoint.decode(hub.datadir.file(name).read_bytes()) for name in names
    ] == result
    for earlier, later in pairwise(result):
        later.verify(hub.identity)
        later.verify_follows(earlier)


def test_time_does_not_go_back_with_the_clock(hub: Any) -> None:
    first = make_checkpoint(hub)
    hub.set_clock(NOON - 1000)
    alice = hub.writer("alice", "record/a")
    alice.write(1, 1)
    make_checkpoint(hub).verify_follows(first)


def test_takes_up_streams_that_are_registered_later(hub: Any) -> None:
    first = make_checkpoint(hub)
    hub.post_json("/tooling/streams", {"name": "import/late"}, as_="admin")
    hub.post_json("/tooling/streams", {"name": "elsewhere/late"}, as_="admin")
    second = make_checkpoint(hub)
    second.verify_follows(first)
    assert set(second.names) - set(first.names) == {"import/late"}


def test_lists_them_in_order_by_pages(hub: Any) -> None:
    alice = hub.writer("alice", "record/a")
    result = []
    for seq in range(1, 6):
        alice.write(seq, seq)
        result.append(make_checkpoint(hub))
    assert listed(hub, "").checkpoints == tuple(result)
    page = listed(hub, "?limit=2")
    assert (page.checkpoints, page.next_after) == (tuple(result[:2]), result[1].created_at)
    page = listed(hub, f"?after={result[2].created_at}&limit=2")
    assert (page.checkpoints, page.next_after) == (tuple(result[3:]), None)
    assert listed(hub, "?limit=0").checkpoints == ()
    assert hub.get(f"{PATH}s?after=01", as_="admin").status_code == 400
    latest = hub.get(f"{PATH}_latest", as_="asker").json["checkpoint"]
    assert RecorderCheckpoint.from_json(latest) == result[-1]


def test_many_who_ask_at_once_get_documents_that_follow_each_other(hub: Any) -> None:
    writers = [hub.writer(name, f"record/{name}") for name in ("a", "b")]
    application = hub.http.application

    def work(place: int) -> RecorderCheckpoint:
        if place < len(writers):
            writers[place].write(1, 1)
        request = RecorderCheckpointRequest(profile_id=PROFILE, force=True)
        answer = application.test_client().post(
            PATH,
            data=request.encode(),
            content_type="application/cbor",
            headers={"Authorization": "Bearer admin"},
        )
        assert answer.status_code == 200, answer.data
        return RecorderCheckpoint.decode(cbor.encode(cbor.decode(answer.data)[2]))

    with ThreadPoolExecutor(8) as pool:
        result = sorted(pool.map(work, range(24)), key=lambda item: item.created_at)
    for earlier, later in pairwise(result):
        later.verify(hub.identity)
        later.verify_follows(earlier)
        assert earlier.created_at < later.created_at or earlier == later


def last_seq(checkpoint: RecorderCheckpoint, stream: str) -> int:
    end = checkpoint.end(stream)
    assert end is not None
    return end.last_seq
