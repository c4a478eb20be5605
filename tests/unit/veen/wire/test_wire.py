"""Every wire class: objects survive their bytes, and no other bytes are read as them (spec 3.1)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from veen.captoken import Allow, CapToken, Rate
from veen.checkpoint import Checkpoint
from veen.errors import Malformed
from veen.hub_identity import CheckpointBinding, HubIdentity, HubKey
from veen.label import Profile
from veen.log.chunk import (
    CheckpointRef,
    ChunkSummary,
    PeakSnapshot,
    Tombstone,
    decode_checkpoint_index,
    encode_checkpoint_index,
)
from veen.msg import Msg
from veen.payload import PayloadHdr
from veen.proofs import InclusionProof, MmrProof, ProofStep, RangeProof
from veen.receipt import Receipt
from veen.wire import api

Objects = Callable[[type], st.SearchStrategy[Any]]
Mutated = Callable[[Any, bytes], bytes]

ENVELOPES = (
    api.BatchRequest, api.BatchResponse, api.BatchResult, api.CheckpointRequest,
    api.CheckpointResponse, api.ErrorEnvelope, api.ProofRequest, api.ProofResponse,
    api.ReceiptRequest, api.ReceiptResponse, api.StreamItem, api.StreamRequest,
    api.StreamResponse, api.SubmitRequest, api.SubmitResponse,
)  # fmt: skip
"""Requests and answers of the data plane; those of /tooling have tests of their own."""
ALL = (
    Msg, Receipt, Checkpoint, PayloadHdr, MmrProof, ProofStep, InclusionProof, RangeProof,
    CapToken, Allow, Rate, Profile, HubKey, HubIdentity, CheckpointBinding,
    ChunkSummary, PeakSnapshot, CheckpointRef, Tombstone, *ENVELOPES,
)  # fmt: skip
FEW = settings(max_examples=max(1, settings().max_examples // 3))

every_class = pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)


@every_class
@FEW
@given(data=st.data())
def test_an_object_survives_its_bytes(wire_objects: Objects, cls: Any, data: st.DataObject) -> None:
    item = data.draw(wire_objects(cls))
    raw = item.encode()
    result = cls.decode(raw)
    assert result == item
    assert result.encode() == raw == replace(result).encode()


@every_class
@FEW
@given(raw=st.binary(max_size=120))
def test_random_bytes_are_malformed_or_the_bytes_of_their_object(cls: Any, raw: bytes) -> None:
    assert_one_encoding(cls, raw)


@every_class
@settings(max_examples=max(1, settings().max_examples // 2))
@given(data=st.data())
def test_bytes_near_valid_ones_are_malformed_or_the_bytes_of_their_object(
    wire_objects: Objects, mutated: Mutated, cls: Any, data: st.DataObject
) -> None:
    assert_one_encoding(cls, mutated(data, data.draw(wire_objects(cls)).encode()))


def assert_one_encoding(cls: Any, raw: bytes) -> None:
    try:
        result = cls.decode(raw)
    except Malformed:
        return
    assert replace(result).encode() == raw


@every_class
@settings(max_examples=max(1, settings().max_examples // 10))
@given(data=st.data())
def test_every_truncation_and_every_trailing_byte_is_malformed(
    wire_objects: Objects, cls: Any, data: st.DataObject
) -> None:
    raw = data.draw(wire_objects(cls)).encode()
    for end in range(len(raw)):
        with pytest.raises(Malformed):
            cls.decode(raw[:end])
    for tail in (b"\x00", b"\xf6", raw):
        with pytest.raises(Malformed):
            cls.decode(raw + tail)


@every_class
@settings(max_examples=5, phases=[Phase.generate])
@given(data=st.data())
def test_an_object_is_frozen_and_pickles(
    wire_objects: Objects, cls: Any, data: st.DataObject
) -> None:
    item = data.draw(wire_objects(cls))
    for field in fields(item):
        with pytest.raises(FrozenInstanceError):
            setattr(item, field.name, None)
    assert pickle.loads(pickle.dumps(item)).encode() == item.encode()


@every_class
@settings(max_examples=5, phases=[Phase.generate])
@given(data=st.data())
def test_an_object_is_hashable(wire_objects: Objects, cls: Any, data: st.DataObject) -> None:
    item = data.draw(wire_objects(cls))
    assert hash(item) == hash(cls.decode(item.encode()))


@FEW
@given(data=st.data())
def test_a_checkpoint_has_seven_elements_or_eight_with_witnesses(
    wire_objects: Objects, data: st.DataObject
) -> None:
    checkpoint = data.draw(wire_objects(Checkpoint))
    assert checkpoint.encode()[0] == (0x87 if checkpoint.witness_sigs is None else 0x88)


def indexes(objects: Objects) -> st.SearchStrategy[dict[int, Any]]:
    return st.dictionaries(st.integers(1, 2**64 - 1), objects(CheckpointRef), max_size=4)


@given(data=st.data())
def test_a_checkpoint_index_survives_its_bytes(wire_objects: Objects, data: st.DataObject) -> None:
    index = data.draw(indexes(wire_objects))
    assert decode_checkpoint_index(encode_checkpoint_index(index)) == index


@given(data=st.data())
def test_bytes_near_a_checkpoint_index_are_malformed_or_its_bytes(
    wire_objects: Objects, mutated: Mutated, data: st.DataObject
) -> None:
    raw = mutated(data, encode_checkpoint_index(data.draw(indexes(wire_objects))))
    try:
        result = decode_checkpoint_index(raw)
    except Malformed:
        return
    assert encode_checkpoint_index(result) == raw


@FEW
@given(data=st.data())
def test_every_truncation_of_a_checkpoint_index_is_malformed(
    wire_objects: Objects, data: st.DataObject
) -> None:
    raw = encode_checkpoint_index(data.draw(indexes(wire_objects)))
    for end in range(len(raw)):
        with pytest.raises(Malformed):
            decode_checkpoint_index(raw[:end])


@FEW
@given(data=st.data())
def test_encoding_refuses_a_checkpoint_index_that_decoding_would(
    wire_objects: Objects, data: st.DataObject
) -> None:
    with pytest.raises(Malformed):
        encode_checkpoint_index({0: data.draw(wire_objects(CheckpointRef))})
