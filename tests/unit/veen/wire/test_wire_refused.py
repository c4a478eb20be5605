"""Faults of wire objects, one by one: types, keys, versions, sizes, and which of two wins (8.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cbor2
import pytest

from veen.captoken import Allow, CapToken, Rate
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, WrongSize, WrongVersion
from veen.hub_identity import CheckpointBinding, new_identity
from veen.label import Profile
from veen.log.chunk import CheckpointRef, ChunkSummary, PeakSnapshot, Tombstone
from veen.msg import Msg
from veen.payload import PayloadHdr
from veen.proofs import InclusionProof, MmrProof, ProofStep, RangeProof
from veen.receipt import Receipt
from veen.wire import api
from veen.wire.objects import WireArray, WireMap

A, B, SIG = b"a" * 32, b"b" * 32, b"s" * 64
MSG = Msg(
    profile_id=A, label=B, client_id=A, client_seq=1, prev_ack=0, auth_ref=B, ct_hash=A,
    ciphertext=b"ct", sig=SIG,
)  # fmt: skip
RECEIPT = Receipt(label=A, stream_seq=1, leaf_hash=B, mmr_root=A, hub_ts=9, hub_sig=SIG)
CHECKPOINT = Checkpoint(
    label_prev=A, label_curr=A, upto_seq=1, mmr_root=B, epoch=0, hub_sig=SIG, witness_sigs=(SIG,)
)
STEP = ProofStep(dir=1, sib=A)
PROOF = MmrProof(leaf_hash=A, path=(STEP,), peaks_after=(B,))
ALLOW = Allow(stream_ids=(A, B), ttl=1, rate=Rate(per_sec=1, burst=2))
TOKEN = CapToken(issuer_pk=A, subject_pk=B, allow=ALLOW, sig_chain=(SIG,))
IDENTITY = new_identity(A, 5, "pinned")
ERROR = api.ErrorEnvelope(code="E.SIG", message="no", retry_after=1, request_id="r")
SAMPLES: tuple[WireArray | WireMap, ...] = (
    MSG, RECEIPT, CHECKPOINT, STEP, PROOF, ALLOW, TOKEN, IDENTITY, IDENTITY.current, ERROR,
    PayloadHdr(schema=A, parent_id=A, att_root=B, cap_ref=B, expires_at=4),
    InclusionProof(stream_seq=1, size=2, path=(A,), peaks=(B,)),
    RangeProof(from_seq=1, to_seq=1, size=2, peaks_before=(A,), subtrees_after=(B,)),
    Rate(per_sec=1, burst=2), Profile(),
    CheckpointBinding(hub_id=A, key_id=A, label=B, epoch=0, upto_seq=1, mmr_root=A),
    ChunkSummary(label=A, start_seq=1, end_seq=1, mmr_root_end=A, entry_count=1, total_bytes=9,
                 entry_hashes_root=B),
    PeakSnapshot(label=A, upto_seq=1, peaks=(B,)),
    Tombstone(label=A, start_seq=1, end_seq=1, chunk_bytes=9, chunk_sha256=A, summary_sha256=B,
              leaves_sha256=A, pruned_at=4, moved_to="m", hub_sig=SIG),
    CheckpointRef(mmr_root=A, start_seq=1, end_seq=1, peaks_ref="p"),
    api.SubmitRequest(msg=b"\x80"),
    api.SubmitResponse(receipt=RECEIPT, server_version="1"),
    api.StreamRequest(label=A, from_seq=1, to_seq=2, max_items=3, cursor=4,
                           with_receipts=True, with_mmr_proof=False),
    api.StreamItem(stream_seq=1, msg=b"\x80", receipt=b"\x80"),
    api.StreamResponse(label=A, from_seq=1, to_seq=2, items=(), next_cursor=3,
                            mmr_proof=PROOF, server_version="1"),
    api.ReceiptRequest(label=A, stream_seq=1),
    api.ReceiptResponse(receipt=RECEIPT), api.ProofRequest(label=A, stream_seq=1),
    api.ProofResponse(mmr_proof=PROOF), api.CheckpointRequest(label=A, upto_seq=1),
    api.CheckpointResponse(checkpoint=CHECKPOINT), api.BatchRequest(msgs=(b"\x80",)),
    api.BatchResult(error=ERROR),
    api.BatchResponse(results=(api.BatchResult(receipt=b"\x80"),)),
)  # fmt: skip

Path = tuple[Any, ...]
every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda item: type(item).__name__)


def values(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value below the top of a decoded tree, with the way to it."""
    if not isinstance(tree, (dict, list)):
        return
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*path, key), value
        yield from values(value, (*path, key))


def changed(tree: Any, path: Path, value: Any) -> bytes:
    """The encoding of ``tree`` with one value replaced."""
    copy = cbor2.loads(cbor2.dumps(tree))
    parent = copy
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return cbor2.dumps(copy)


def places(sample: Any, kind: type) -> list[Path]:
    raw_items = {"msg", "msgs", "receipt"} if type(sample).__module__ == "veen.wire.api" else set()
    names = list(type(sample).__dataclass_fields__)
    keyed = {
        key for key, name in enumerate(names, 1)
        if name in raw_items and "RawItem" in str(type(sample).__annotations__[name])
    }  # fmt: skip
    tree = cbor2.loads(sample.encode())
    return [path for path, value in values(tree) if type(value) is kind and path[0] not in keyed]


@every_sample
@pytest.mark.parametrize("wrong", [True, False, None, "1", b"1", [], {}, -1, 1.0], ids=repr)
def test_refuses_another_type_where_an_integer_is_due(sample: Any, wrong: Any) -> None:
    tree = cbor2.loads(sample.encode())
    for path in places(sample, int):
        with pytest.raises(Malformed) as refusal:
            type(sample).decode(changed(tree, path, wrong))
        assert type(refusal.value) is Malformed


@every_sample
@pytest.mark.parametrize("wrong", [True, None, 1, "a" * 32, [], {}, 1.0], ids=repr)
def test_refuses_another_type_where_bytes_are_due(sample: Any, wrong: Any) -> None:
    tree = cbor2.loads(sample.encode())
    for path in places(sample, bytes):
        if wrong is None and type(sample) is Msg and path == (6,):
            continue  # auth_ref, the one field that may be null
        with pytest.raises(Malformed) as refusal:
            type(sample).decode(changed(tree, path, wrong))
        assert type(refusal.value) is Malformed


@every_sample
def test_refuses_bytes_of_another_size(sample: Any) -> None:
    tree = cbor2.loads(sample.encode())
    for path in places(sample, bytes):
        value = dict(values(tree))[path]
        if len(value) not in (32, 64):
            continue
        for wrong in (b"", value[:-1], value + b"x", bytes(96 - len(value))):
            with pytest.raises(WrongSize):
                type(sample).decode(changed(tree, path, wrong))


@every_sample
def test_refuses_an_unknown_key_or_element(sample: Any) -> None:
    tree = cbor2.loads(sample.encode())
    for extra in (0, 1, b"x", None):
        wider = [*tree, extra] if isinstance(tree, list) else {**tree, 20: extra}
        with pytest.raises(Malformed):
            type(sample).decode(cbor2.dumps(wider))
    if isinstance(tree, dict):
        with pytest.raises(Malformed):
            type(sample).decode(cbor2.dumps({0: 1, **tree}))


@every_sample
def test_refuses_a_missing_or_null_field_unless_it_is_optional(sample: Any) -> None:
    tree = cbor2.loads(sample.encode())
    hints = list(type(sample).__annotations__.values())
    pairs = list(tree.items() if isinstance(tree, dict) else enumerate(tree, 1))
    for key, _ in pairs:
        left = [pair for pair in pairs if pair[0] != key]
        missing = dict(left) if isinstance(tree, dict) else [value for _, value in left]
        if "None" not in hints[key - 1]:
            with pytest.raises(Malformed):
                type(sample).decode(cbor2.dumps(missing))
        path = (key,) if isinstance(tree, dict) else (key - 1,)
        if "RawItem" not in hints[key - 1] and not (type(sample) is Msg and key == 7):
            with pytest.raises(Malformed):
                type(sample).decode(changed(tree, path, None))


@every_sample
@pytest.mark.parametrize("version", [0, 2, 255, 2**64 - 1])
def test_refuses_another_version(sample: Any, version: int) -> None:
    if "ver" not in type(sample).__dataclass_fields__:
        return
    tree = cbor2.loads(sample.encode())
    with pytest.raises(WrongVersion):
        type(sample).decode(changed(tree, (0,) if isinstance(tree, list) else (1,), version))
    with pytest.raises(WrongVersion):
        replace(sample, ver=version).encode()
