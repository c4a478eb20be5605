"""Profiles, epochs and the labels of a stream within the skew window (spec 2, 3.2, 12)."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.checkpoint import Checkpoint
from veen.errors import Malformed, Untrusted
from veen.label import (
    DEFAULT_PROFILE,
    EpochLabels,
    Profile,
    derive_label,
    hub_id,
    routing_key,
    stream_id,
)
from veen.wire import cbor

TIMES = st.integers(0, 2**40)
LABELS = EpochLabels(b"k" * 32, b"s" * 32, Profile(epoch_sec=60))


@given(TIMES, st.integers(1, 100_000))
def test_an_epoch_is_the_time_in_whole_lengths(now: int, epoch_sec: int) -> None:
    epoch = Profile(epoch_sec=epoch_sec).epoch(now)
    assert epoch * epoch_sec <= now < (epoch + 1) * epoch_sec


@given(TIMES, st.integers(1, 1000), st.integers(0, 5000))
def test_epochs_are_those_within_the_whole_epochs_of_the_skew(
    now: int, epoch_sec: int, skew: int
) -> None:
    current, width = now // epoch_sec, skew // epoch_sec
    naive = [epoch for epoch in range(current - width, current + width + 1) if epoch >= 0]
    assert list(Profile(epoch_sec=epoch_sec).epochs(now, skew)) == naive


@given(TIMES, st.integers(0, 5000))
def test_without_epochs_there_is_epoch_0_alone(now: int, skew: int) -> None:
    assert DEFAULT_PROFILE.epoch(now) == 0
    assert list(DEFAULT_PROFILE.epochs(now, skew)) == [0]


@pytest.mark.parametrize(
    ("now", "skew", "epochs"),
    [
        (0, 0, [0]),
        (59, 59, [0]),
        (59, 60, [0, 1]),
        (60, 59, [1]),
        (60, 60, [0, 1, 2]),
        (119, 119, [0, 1, 2]),
        (120, 120, [0, 1, 2, 3, 4]),
        (0, 180, [0, 1, 2, 3]),
    ],
)
def test_accepted_labels_at_the_edges_of_epoch_and_skew(
    now: int, skew: int, epochs: list[int]
) -> None:
    accepted = LABELS.accepted(now, skew)
    assert list(accepted.values()) == epochs
    assert accepted == {LABELS.at(epoch): epoch for epoch in epochs}


def test_the_latest_time_has_labels_too() -> None:
    every_second = EpochLabels(b"k" * 32, b"s" * 32, Profile(epoch_sec=1))
    assert 2**64 - 1 in every_second.accepted(2**64 - 1, 1).values()


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32), TIMES)
def test_a_label_is_the_hash_the_specification_prints(
    routing: bytes, stream: bytes, epoch: int
) -> None:
    due = sha256(b"veen/label\x00" + routing + stream + epoch.to_bytes(8, "big")).digest()
    assert derive_label(routing, stream, epoch) == due


def test_hub_and_stream_and_epoch_each_change_the_label() -> None:
    routing = routing_key(hub_id(b"p" * 32))
    result = {
        derive_label(routing, b"s" * 32, 0),
        derive_label(routing, b"s" * 32, 1),
        derive_label(routing, b"t" * 32, 0),
        derive_label(routing_key(hub_id(b"q" * 32)), b"s" * 32, 0),
    }
    assert len(result) == 4


@given(st.text(max_size=70).filter(lambda name: len(name) != 64))
def test_a_stream_is_the_hash_of_its_name(name: str) -> None:
    assert stream_id(name) == sha256(name.encode()).digest()


def test_64_hex_digits_are_the_identifier_itself_and_nothing_near_them() -> None:
    digits = "0aF" + "1" * 61
    assert stream_id(digits) == bytes.fromhex(digits)
    for name in (
        digits + "\n",
        " " + digits[1:],
        digits[:-1] + "g",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 64,
    ):
        assert stream_id(name) == sha256(name.encode()).digest()


@pytest.mark.parametrize("key", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("value", ["", "none", "XCHACHA20POLY1305"])
def test_refuses_an_algorithm_that_is_not_of_this_version(key: int, value: str) -> None:
    with pytest.raises(Malformed):
        Profile.decode(cbor.encode({**DEFAULT_PROFILE.plain(), key: value}))


@pytest.mark.parametrize("key", range(1, 9))
def test_refuses_a_profile_without_a_field(key: int) -> None:
    plain = DEFAULT_PROFILE.plain()
    del plain[key]
    with pytest.raises(Malformed):
        Profile.decode(cbor.encode(plain))


def test_the_default_profile_is_the_decided_one() -> None:
    result = DEFAULT_PROFILE.profile_id().hex()
    assert result.startswith("7b6d324d")
    assert result.endswith("3240be1")


def a_checkpoint(prev: bytes, curr: bytes, epoch: int) -> Checkpoint:
    return Checkpoint(label_prev=prev, label_curr=curr, upto_seq=5, mmr_root=b"r" * 32, epoch=epoch)


def test_a_checkpoint_stays_in_its_epoch_or_names_the_one_before() -> None:
    a_checkpoint(LABELS.at(3), LABELS.at(3), 3).verify_labels(LABELS)
    a_checkpoint(LABELS.at(2), LABELS.at(3), 3).verify_labels(LABELS)


@pytest.mark.parametrize(
    ("prev", "curr", "epoch"), [(3, 3, 2), (2, 3, 2), (1, 3, 3), (4, 3, 3), (3, 2, 3), (1, 0, 0)]
)
def test_refuses_a_checkpoint_whose_labels_and_epoch_do_not_go_together(
    prev: int, curr: int, epoch: int
) -> None:
    with pytest.raises(Untrusted):
        a_checkpoint(LABELS.at(prev), LABELS.at(curr), epoch).verify_labels(LABELS)


def test_refuses_a_checkpoint_of_another_size_or_root() -> None:
    checkpoint = a_checkpoint(LABELS.at(0), LABELS.at(0), 0)
    checkpoint.verify_root(5, b"r" * 32)
    for size, root in ((4, b"r" * 32), (6, b"r" * 32), (5, b"q" * 32)):
        with pytest.raises(Untrusted):
            checkpoint.verify_root(size, root)
