"""Hashes and identifiers of veen.json against the library."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from support.vectors import load_vectors
from veen import digest, limits
from veen.errors import Malformed
from veen.label import (
    DEFAULT_PROFILE,
    EpochLabels,
    Profile,
    derive_label,
    hub_id,
    routing_key,
    stream_id,
)
from veen.limits import Limits
from veen.msg import Msg

CASES = load_vectors("veen.json")
NAME = itemgetter("name")


@pytest.mark.parametrize("case", CASES["digests"], ids=NAME)
def test_digest(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["data"])
    result = digest.ht(case["tag"], data) if case["tag"] else digest.h(data)
    assert result.hex() == case["digest"]


def test_parts_of_a_tagged_hash_are_joined() -> None:
    assert digest.ht("veen/leaf", b"a", b"bc") == digest.ht("veen/leaf", b"abc")


@pytest.mark.parametrize("case", CASES["schema_ids"], ids=NAME)
def test_schema_id_is_the_hash_of_its_name(case: dict[str, Any]) -> None:
    assert digest.h(case["name"].encode()).hex() == case["schema_id"]


@pytest.mark.parametrize("case", CASES["labels"], ids=NAME)
def test_label(case: dict[str, Any]) -> None:
    routing, stream = bytes.fromhex(case["routing_key"]), bytes.fromhex(case["stream_id"])
    assert derive_label(routing, stream, case["epoch"]).hex() == case["label"]


@pytest.mark.parametrize("case", CASES["labels"][2:], ids=NAME)
def test_epoch_labels_give_the_label_of_an_epoch(case: dict[str, Any]) -> None:
    routing, stream = bytes.fromhex(case["routing_key"]), bytes.fromhex(case["stream_id"])
    labels = EpochLabels(routing, stream, Profile(epoch_sec=60))
    assert labels.accepted(case["epoch"] * 60 + 59, 0) == {
        bytes.fromhex(case["label"]): case["epoch"]
    }


@pytest.mark.parametrize("case", CASES["hubs"], ids=NAME)
def test_hub_id_and_routing_key(case: dict[str, Any]) -> None:
    result = hub_id(bytes.fromhex(case["hub_pk"]))
    assert (result.hex(), routing_key(result).hex()) == (case["hub_id"], case["routing_key"])


@pytest.mark.parametrize("case", CASES["streams"], ids=NAME)
def test_stream_id(case: dict[str, Any]) -> None:
    assert stream_id(case["stream"]).hex() == case["stream_id"]


@pytest.mark.parametrize("case", CASES["profiles"], ids=NAME)
def test_profile_encodes_to_its_bytes_and_id(case: dict[str, Any]) -> None:
    profile = Profile(epoch_sec=case["epoch_sec"], pad_block=case["pad_block"])
    assert profile.encode().hex() == case["cbor"]
    assert profile.profile_id().hex() == case["profile_id"]


@pytest.mark.parametrize("case", CASES["profiles"], ids=NAME)
def test_profile_decodes_from_its_bytes(case: dict[str, Any]) -> None:
    profile = Profile(epoch_sec=case["epoch_sec"], pad_block=case["pad_block"])
    assert Profile.decode(bytes.fromhex(case["cbor"])) == profile


def test_default_profile_has_neither_epochs_nor_padding() -> None:
    (case,) = (c for c in CASES["profiles"] if (c["epoch_sec"], c["pad_block"]) == (0, 0))
    assert DEFAULT_PROFILE.profile_id().hex() == case["profile_id"]


@pytest.mark.parametrize("case", CASES["leaves"], ids=NAME)
def test_leaf_hash(case: dict[str, Any], revived: Any) -> None:
    msg = Msg(prev_ack=0, auth_ref=None, ciphertext=b"", **revived(case["fields"]))
    assert msg.leaf_hash().hex() == case["leaf_hash"]


@pytest.mark.parametrize(("name", "value"), CASES["limits"].items())
def test_limits_are_those_of_the_registry(name: str, value: int) -> None:
    result = getattr(limits, name) if name.isupper() else getattr(Limits(), name)
    assert result == value


@pytest.mark.parametrize("case", CASES["profiles"], ids=NAME)
def test_profile_cut_short_anywhere_is_refused(case: dict[str, Any]) -> None:
    raw = bytes.fromhex(case["cbor"])
    for size in range(len(raw)):
        with pytest.raises(Malformed):
            Profile.decode(raw[:size])
