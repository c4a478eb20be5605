"""Proofs against later sizes, checkpoints by range and places by leaf or time."""

from __future__ import annotations

from typing import Any

import pytest

from veen.proofs import verify_consistency
from veen.wire.api import (
    CheckpointRangeResponse,
    CheckpointRequest,
    CheckpointResponse,
    ConsistencyRequest,
    EntryPlace,
    InclusionRequest,
    InclusionResponse,
    LocateRequest,
    LocateResponse,
    RangeProofRequest,
    RangeProofResponse,
)

CBOR = "application/cbor"
NOON = 1_900_000_000


@pytest.fixture(scope="module")
def alice(hub: Any) -> Any:
    return hub.writer("alice", "record/a")


@pytest.fixture(scope="module")
def receipts(alice: Any) -> Any:
    """Eleven of them, one for each second from noon on."""
    result = []
    for seq in range(1, 12):
        alice.hub.set_clock(NOON + seq)
        result += alice.write(seq, seq)
    return result


def ask(alice: Any, path: str, request: Any) -> Any:
    return alice.hub.post(path, request, as_="admin")


def test_every_leaf_is_included_at_every_later_size(alice: Any, receipts: Any) -> None:
    for receipt in receipts:
        for head in receipts[receipt.stream_seq - 1 :]:
            seq, size = receipt.stream_seq, head.stream_seq
            request = InclusionRequest(label=alice.label, stream_seq=seq, size=size)
            response = InclusionResponse.decode(ask(alice, "/tooling/inclusion", request).data)
            response.proof.verify(
                leaf_hash=receipt.leaf_hash, stream_seq=seq, size=size, root=head.mmr_root
            )


def test_later_sizes_are_consistent_with_earlier_ones(alice: Any, receipts: Any) -> None:
    new = receipts[-1]
    for old in receipts:
        request = ConsistencyRequest(label=alice.label, old_size=old.stream_seq, new_size=11)
        response = RangeProofResponse.decode(ask(alice, "/tooling/consistency", request).data)
        verify_consistency(
            response.proof,
            old_size=old.stream_seq, old_root=old.mmr_root, new_size=11, new_root=new.mmr_root,
        )  # fmt: skip


def test_a_run_of_leaves_stands_in_the_log(alice: Any, receipts: Any) -> None:
    request = RangeProofRequest(label=alice.label, from_seq=3, to_seq=7, size=11)
    response = RangeProofResponse.decode(ask(alice, "/tooling/range_proof", request).data)
    leaves = [receipt.leaf_hash for receipt in receipts[2:7]]
    response.proof.verify(leaves=leaves, size=11, root=receipts[-1].mmr_root)


@pytest.mark.parametrize(
    ("path", "numbers"),
    [
        ("inclusion", {"stream_seq": 1, "size": 12}),
        ("inclusion", {"stream_seq": 0, "size": 11}),
        ("inclusion", {"stream_seq": 5, "size": 4}),
        ("inclusion", {"stream_seq": 1, "size": 2**64 - 1}),
        ("consistency", {"old_size": 5, "new_size": 12}),
        ("consistency", {"old_size": 6, "new_size": 5}),
        ("range_proof", {"from_seq": 0, "to_seq": 3, "size": 11}),
        ("range_proof", {"from_seq": 5, "to_seq": 3, "size": 11}),
    ],
)
def test_what_is_no_part_of_the_log_is_not_found(
    alice: Any, receipts: Any, path: str, numbers: dict[str, int]
) -> None:
    body = {"label": alice.label.hex(), **numbers}
    answer = alice.hub.post_json(f"/tooling/{path}", body, as_="admin")
    assert (answer.status_code, answer.json["code"]) == (404, "E.NOT_FOUND")


def test_a_leaf_is_found_where_it_stands(alice: Any, receipts: Any) -> None:
    request = LocateRequest(leaf_hash=receipts[4].leaf_hash)
    response = LocateResponse.decode(ask(alice, "/tooling/locate", request).data)
    assert response.places == (EntryPlace(label=alice.label, stream_seq=5),)
    nowhere = ask(alice, "/tooling/locate", LocateRequest(leaf_hash=bytes(32)))
    assert LocateResponse.decode(nowhere.data).places == ()


@pytest.mark.parametrize(("hub_ts", "seqs"), [(0, [1]), (NOON + 4, [4]), (2**64 - 1, [])])
def test_the_first_place_not_before_a_time(
    alice: Any, receipts: Any, hub_ts: int, seqs: list[int]
) -> None:
    request = LocateRequest(label=alice.label, hub_ts=hub_ts)
    response = LocateResponse.decode(ask(alice, "/tooling/locate", request).data)
    assert [place.stream_seq for place in response.places] == seqs


@pytest.mark.parametrize("body", [{}, {"label": "00" * 32}, {"leaf_hash": "00" * 32, "hub_ts": 1}])
def test_refuses_to_look_for_two_things_or_none(hub: Any, body: dict[str, Any]) -> None:
    assert hub.post_json("/tooling/locate", body, as_="admin").status_code == 400


def test_checkpoints_are_listed_in_order_and_the_latest_is_the_last(
    alice: Any, receipts: Any
) -> None:
    for upto in (8, 2, 5):
        request = CheckpointRequest(label=alice.label, upto_seq=upto)
        assert ask(alice, "/v1/checkpoint", request).status_code == 200
    query = f"/tooling/checkpoint_range?label={alice.label.hex()}"
    whole = ranged(alice.hub, query)
    assert ([checkpoint.upto_seq for checkpoint in whole.checkpoints], whole.next_from_seq) == (
        [2, 5, 8],
        None,
    )
    first = ranged(alice.hub, f"{query}&from_seq=3&limit=1")
    assert ([checkpoint.upto_seq for checkpoint in first.checkpoints], first.next_from_seq) == (
        [5],
        6,
    )
    assert ranged(alice.hub, f"{query}&from_seq={2**64 - 1}").checkpoints == ()
    latest = alice.hub.get(
        f"/tooling/checkpoint_latest?label={alice.label.hex()}", as_="admin", Accept=CBOR
    )
    assert CheckpointResponse.decode(latest.data).checkpoint == whole.checkpoints[-1]


@pytest.mark.parametrize(
    "query",
    ["", "label=00", "label=" + "AB" * 32, "label={0}&label={0}", "label={0}&x=1",
     "label={0}&limit=-1", "label={0}&limit=1e3", "label={0}&from_seq=99999999999999999999"],
)  # fmt: skip
def test_refuses_arguments_it_does_not_know(hub: Any, query: str) -> None:
    path = f"/tooling/checkpoint_range?{query.format('00' * 32)}"
    answer = hub.get(path, as_="admin")
    assert (answer.status_code, answer.json["code"]) == (400, "E.BAD_REQUEST")


def ranged(hub: Any, path: str) -> CheckpointRangeResponse:
    return CheckpointRangeResponse.decode(hub.get(path, as_="admin", Accept=CBOR).data)
