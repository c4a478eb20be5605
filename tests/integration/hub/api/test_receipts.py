"""receipt, proof and checkpoint by place (spec 10.4.3 - 10.4.5)."""

from __future__ import annotations

from typing import Any

import pytest

from veen.label import DEFAULT_PROFILE
from veen.wire.api import (
    CheckpointRequest,
    CheckpointResponse,
    ErrorEnvelope,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
)


@pytest.fixture(scope="module")
def alice(hub: Any) -> Any:
    return hub.writer("alice", "record/a")


@pytest.fixture(scope="module")
def receipts(alice: Any) -> Any:
    return alice.write(1, 6)


def test_a_receipt_is_that_of_the_submit(alice: Any, receipts: Any) -> None:
    request = ReceiptRequest(label=alice.label, stream_seq=4)
    answer = alice.hub.post("/v1/receipt", request, as_="admin")
    assert ReceiptResponse.decode(answer.data).receipt == receipts[3]


def test_a_proof_leads_to_the_root_of_its_receipt(alice: Any, receipts: Any) -> None:
    for receipt in receipts:
        request = ProofRequest(label=alice.label, stream_seq=receipt.stream_seq)
        answer = alice.hub.post("/v1/proof", request, as_="admin")
        ProofResponse.decode(answer.data).mmr_proof.verify(
            leaf_hash=receipt.leaf_hash, stream_seq=receipt.stream_seq, root=receipt.mmr_root
        )


@pytest.mark.parametrize("seq", [0, 7, 2**63, 2**64 - 1])
def test_a_place_that_is_not_there_is_not_found(alice: Any, receipts: Any, seq: int) -> None:
    request = ReceiptRequest(label=alice.label, stream_seq=seq)
    for path in ("/v1/receipt", "/v1/proof", "/v1/checkpoint"):
        answer = alice.hub.post(path, request, as_="admin")
        assert (answer.status_code, ErrorEnvelope.decode(answer.data).code) == (404, "E.NOT_FOUND")


def test_who_manages_gets_a_checkpoint_made_and_others_then_find_it(
    alice: Any, receipts: Any
) -> None:
    request = CheckpointRequest(label=alice.label, upto_seq=5)
    before = alice.hub.post("/v1/checkpoint", request, as_="asker")
    assert ErrorEnvelope.decode(before.data).code == "E.NOT_FOUND"
    answer = alice.hub.post("/v1/checkpoint", request, as_="admin")
    result = alice.hub.post("/v1/checkpoint", request, as_="asker")
    assert result.data == answer.data
    checkpoint = CheckpointResponse.decode(result.data).checkpoint
    alice.hub.identity.verify_checkpoint(checkpoint, DEFAULT_PROFILE, not_before=0)
    checkpoint.verify_root(5, receipts[4].mmr_root)
