"""stream: pages, cursors and the proof that comes with a page (spec 10.4.2, 10.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hub.api.app import create_app
from hub.settings import load
from support.hub import driven_hub
from veen.msg import Msg
from veen.receipt import Receipt
from veen.wire.api import ErrorEnvelope, StreamRequest, StreamResponse

COUNT = 10


@pytest.fixture(scope="module")
def alice(hub: Any) -> Any:
    writer = hub.writer("alice", "record/a")
    writer.write(1, COUNT)
    return writer


def test_reads_the_whole_label(alice: Any) -> None:
    result = page(alice, from_seq=1)
    assert seqs(result) == list(range(1, COUNT + 1))
    assert result.next_cursor is None
    assert result.items[0].receipt is None
    assert [Msg.decode(item.msg).client_seq for item in result.items] == list(range(1, COUNT + 1))


def test_from_seq_zero_is_read_as_one(alice: Any) -> None:
    result = page(alice, from_seq=0, max_items=1)
    assert (seqs(result), result.from_seq) == ([1], 1)


def test_bounds_are_inclusive(alice: Any) -> None:
    result = page(alice, from_seq=3, to_seq=5)
    assert (seqs(result), result.to_seq, result.next_cursor) == ([3, 4, 5], 5, None)


def test_pages_follow_each_other_to_the_end(alice: Any) -> None:
    read, cursor = [], None
    while True:
        result = page(alice, from_seq=2, to_seq=9, max_items=3, cursor=cursor)
        read += seqs(result)
        if result.next_cursor is None:
            break
        cursor = result.next_cursor
    assert read == list(range(2, 10))


def test_a_cursor_takes_precedence_over_from_seq(alice: Any) -> None:
    assert seqs(page(alice, from_seq=1, cursor=9)) == [9, 10]


def test_a_page_that_ends_with_the_range_has_no_cursor(alice: Any) -> None:
    assert page(alice, from_seq=1, to_seq=3, max_items=3).next_cursor is None
    assert page(alice, from_seq=1, to_seq=4, max_items=3).next_cursor == 4


@pytest.mark.parametrize(
    "bounds",
    [
        {"from_seq": COUNT + 1},
        {"from_seq": 5, "to_seq": 4},
        {"from_seq": 2**64 - 1},
        {"from_seq": 1, "cursor": 2**64 - 1},
        {"from_seq": 1, "to_seq": 0},
    ],
)
def test_an_empty_range_has_no_items(alice: Any, bounds: dict[str, int]) -> None:
    result = page(alice, with_mmr_proof=True, **bounds)
    assert (result.items, result.next_cursor, result.mmr_proof) == ((), None, None)


def test_a_page_of_no_items_leads_on(alice: Any) -> None:
    assert page(alice, from_seq=4, max_items=0).next_cursor == 4


def test_the_server_bounds_a_page_by_its_bytes(tmp_path: Path) -> None:
    """A page ends at 8 MiB, and the entries here have almost 1 MiB each."""
    bench, client = driven_hub.Bench(tmp_path / "hub"), driven_hub.a_key("client")
    stream, token = driven_hub.STREAMS[0], bench.authorize(client)
    for _ in range(COUNT):
        assert isinstance(bench.send(client, stream, token, size=1_000_000)[0], bytes)
    label = bench.label(stream)
    bench.stop()
    (tmp_path / "hub.toml").write_text('reads = "open"')
    http = create_app(load(tmp_path / "hub.toml"), bench.datadir).test_client()
    request = StreamRequest(label=label, from_seq=2).encode()
    answer = http.post("/v1/stream", data=request, content_type="application/cbor")
    result = StreamResponse.decode(answer.data)
    assert (seqs(result), result.next_cursor) == ([2, 3, 4, 5, 6, 7, 8, 9], 10)


def test_the_proof_is_of_the_last_item(alice: Any) -> None:
    result = page(alice, from_seq=1, max_items=7, with_receipts=True, with_mmr_proof=True)
    raw = result.items[-1].receipt
    assert raw is not None
    assert result.mmr_proof is not None
    receipt = Receipt.decode(raw)
    alice.hub.identity.verify_receipt(receipt)
    leaf = Msg.decode(result.items[-1].msg).leaf_hash()
    result.mmr_proof.verify(leaf_hash=leaf, stream_seq=7, root=receipt.mmr_root)


def test_an_unknown_label_is_not_found(hub: Any) -> None:
    answer = hub.post("/v1/stream", StreamRequest(label=bytes(32), from_seq=1), as_="admin")
    assert (answer.status_code, ErrorEnvelope.decode(answer.data).code) == (404, "E.NOT_FOUND")


def page(alice: Any, **fields: Any) -> StreamResponse:
    request = StreamRequest(label=alice.label, **fields)
    return StreamResponse.decode(alice.hub.post("/v1/stream", request, as_="admin").data)


def seqs(response: StreamResponse) -> list[int]:
    return [item.stream_seq for item in response.items]
