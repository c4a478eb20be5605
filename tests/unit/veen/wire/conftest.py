"""Generated objects of every wire class, valid by construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from hashlib import sha256
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import strategies as st

from veen.captoken import Allow, CapToken
from veen.checkpoint import Checkpoint
from veen.hub_identity import HubIdentity, HubKey
from veen.label import Profile, hub_id
from veen.log.chunk import CheckpointRef, ChunkSummary, PeakSnapshot, Tombstone
from veen.proofs import InclusionProof, ProofStep, RangeProof
from veen.wire import cbor
from veen.wire.api import BatchResult, ErrorEnvelope
from veen.wire.schema import Size

UINT = st.one_of(
    st.integers(0, 30), st.integers(0, 2**64 - 1), st.sampled_from((255, 256, 65536, 2**64 - 1))
)
BYTES32 = st.binary(min_size=32, max_size=32)
LEAF_VALUES = st.one_of(UINT, st.binary(max_size=9), st.text(max_size=9), st.booleans(), st.none())
TREES = st.recursive(LEAF_VALUES, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
MARKED: dict[str, st.SearchStrategy[Any]] = {
    "version": st.just(1),
    "raw item": TREES.filter(lambda tree: tree is not None).map(cbor.encode),
    "detail": st.dictionaries(st.text(max_size=9), TREES, max_size=3),
}
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: UINT,
    bytes: st.binary(max_size=80),
    str: st.text(max_size=12),
    bool: st.booleans(),
}


def value_of(annotation: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if NoneType in arguments:
        return st.none() | value_of(arguments[0])
    if origin is Annotated:
        mark = arguments[1]
        if isinstance(mark, Size):
            return st.binary(min_size=mark.exact, max_size=mark.exact)
        return MARKED[mark.name]
    if origin is tuple:
        return st.lists(value_of(arguments[0]), max_size=4).map(tuple)
    return PLAIN[annotation] if annotation in PLAIN else an_object(annotation)


def fields_of(cls: type, **special: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls, include_extras=True)
    names = [name for name in (field.name for field in fields(cls)) if name not in special]
    return st.builds(cls, **{name: value_of(hints[name]) for name in names}, **special)


@st.composite
def a_run(draw: st.DrawFn, least: int) -> tuple[int, int, int]:
    """Three numbers in order, the first from ``least`` up."""
    numbers = sorted(draw(st.tuples(*[st.one_of(st.integers(0, 20), UINT)] * 3)))
    first, middle, last = (max(least, min(n, 2**64 - 2)) for n in numbers)
    return first, middle, last


@st.composite
def a_hub_key(draw: st.DrawFn) -> HubKey:
    start, end, _ = draw(a_run(0))
    hub_pk = draw(BYTES32)
    return HubKey(
        key_id=sha256(hub_pk).digest(),
        hub_pk=hub_pk,
        valid_from=start,
        valid_until=draw(st.none() | st.just(end)),
        endorsement=draw(st.none() | st.binary(min_size=64, max_size=64)),
    )


@st.composite
def a_hub_identity(draw: st.DrawFn) -> HubIdentity:
    unique = st.lists(a_hub_key(), min_size=1, max_size=3, unique_by=lambda key: key.key_id)
    keys = sorted(draw(unique), key=lambda key: key.valid_from)
    name = hub_id(keys[0].hub_pk)
    return HubIdentity(hub_id=name, hub_keys=tuple(keys), anchoring=draw(st.text(max_size=9)))


@st.composite
def an_inclusion_proof(draw: st.DrawFn) -> InclusionProof:
    seq, size, _ = draw(a_run(1))
    hashes = st.lists(BYTES32, max_size=4).map(tuple)
    return InclusionProof(stream_seq=seq, size=size, path=draw(hashes), peaks=draw(hashes))


@st.composite
def a_range_proof(draw: st.DrawFn) -> RangeProof:
    first, last, size = draw(a_run(1))
    result: RangeProof = draw(
        fields_of(
            RangeProof,
            from_seq=st.just(first),
            to_seq=st.sampled_from((first - 1, last)),
            size=st.just(size),
        )
    )
    return result


@st.composite
def a_chunk_summary(draw: st.DrawFn) -> ChunkSummary:
    start, end, _ = draw(a_run(1))
    numbers = {"start_seq": start, "end_seq": end, "entry_count": end - start + 1}
    result: ChunkSummary = draw(
        fields_of(ChunkSummary, **{name: st.just(n) for name, n in numbers.items()})
    )
    return result


@st.composite
def a_checkpoint_ref(draw: st.DrawFn) -> CheckpointRef:
    start, end, _ = draw(a_run(1))
    result: CheckpointRef = draw(
        fields_of(CheckpointRef, start_seq=st.just(start), end_seq=st.just(end))
    )
    return result


@st.composite
def a_tombstone(draw: st.DrawFn) -> Tombstone:
    start, end, _ = draw(a_run(1))
    result: Tombstone = draw(fields_of(Tombstone, start_seq=st.just(start), end_seq=st.just(end)))
    return result


@st.composite
def a_peak_snapshot(draw: st.DrawFn) -> PeakSnapshot:
    size = draw(st.one_of(st.integers(0, 40), st.sampled_from((2**63, 2**64 - 1))))
    count = size.bit_count()
    peaks = (
        draw(st.lists(BYTES32, min_size=count, max_size=count))
        if count < 7
        else [bytes(32)] * count
    )
    return PeakSnapshot(label=draw(BYTES32), upto_seq=size, peaks=tuple(peaks))


@st.composite
def a_batch_result(draw: st.DrawFn) -> BatchResult:
    if draw(st.booleans()):
        return BatchResult(receipt=draw(MARKED["raw item"]))
    return BatchResult(error=draw(an_object(ErrorEnvelope)))


def an_object(cls: type) -> st.SearchStrategy[Any]:
    if cls in RULED:
        return RULED[cls]()
    return fields_of(cls)


RULED: dict[type, Callable[[], st.SearchStrategy[Any]]] = {
    ProofStep: lambda: fields_of(ProofStep, dir=st.integers(0, 1)),
    Allow: lambda: fields_of(
        Allow,
        stream_ids=st.sets(BYTES32, min_size=1, max_size=4).map(lambda ids: tuple(sorted(ids))),
    ),
    CapToken: lambda: fields_of(
        CapToken,
        sig_chain=st.lists(st.binary(min_size=64, max_size=64), min_size=1, max_size=8).map(tuple),
    ),
    Checkpoint: lambda: fields_of(
        Checkpoint,
        witness_sigs=st.none()
        | st.lists(st.binary(min_size=64, max_size=64), min_size=1, max_size=3).map(tuple),
    ),
    Profile: lambda: st.builds(Profile, epoch_sec=UINT, pad_block=UINT),
    HubKey: a_hub_key,
    HubIdentity: a_hub_identity,
    InclusionProof: an_inclusion_proof,
    RangeProof: a_range_proof,
    ChunkSummary: a_chunk_summary,
    PeakSnapshot: a_peak_snapshot,
    Tombstone: a_tombstone,
    CheckpointRef: a_checkpoint_ref,
    BatchResult: a_batch_result,
}


@pytest.fixture(scope="session")
def wire_objects() -> Callable[[type], st.SearchStrategy[Any]]:
    """The strategy that generates valid objects of a wire class."""
    return an_object
