"""A proof may have exactly as many hashes as the limit says, and none more."""

from __future__ import annotations

from typing import Any

import pytest

from veen.errors import Malformed
from veen.limits import MAX_PROOF_PATH
from veen.proofs import InclusionProof, MmrProof, ProofStep, RangeProof

HASH = bytes(32)
STEP = ProofStep(dir=0, sib=HASH)
INCLUSION = {"stream_seq": 1, "size": 1, "path": (), "peaks": ()}
MMR = {"leaf_hash": HASH, "path": (), "peaks_after": ()}
RANGE = {"from_seq": 1, "to_seq": 1, "size": 1, "peaks_before": (), "subtrees_after": ()}


@pytest.mark.parametrize(
    ("proof", "usual", "field", "item", "limit"),
    [
        (InclusionProof, INCLUSION, "path", HASH, MAX_PROOF_PATH),
        (InclusionProof, INCLUSION, "peaks", HASH, MAX_PROOF_PATH),
        (MmrProof, MMR, "path", STEP, MAX_PROOF_PATH),
        (MmrProof, MMR, "peaks_after", HASH, MAX_PROOF_PATH),
        (RangeProof, RANGE, "peaks_before", HASH, MAX_PROOF_PATH),
        (RangeProof, RANGE, "subtrees_after", HASH, 2 * MAX_PROOF_PATH),
    ],
    ids=["path", "peaks", "steps", "peaks_after", "peaks_before", "subtrees_after"],
)
def test_takes_a_proof_up_to_the_limit(
    proof: Any, usual: dict[str, Any], field: str, item: Any, limit: int
) -> None:
    longest = proof(**usual | {field: (item,) * limit})
    assert proof.decode(longest.encode()) == longest
    with pytest.raises(Malformed):
        proof(**usual | {field: (item,) * (limit + 1)}).encode()
