"""The limit registry: what may be lowered, and what may not be raised (spec 14)."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.limits import BadLimit, Limits

NAMES = [field.name for field in fields(Limits)]
MAXIMA = {
    "max_msg_bytes": 1_048_576,
    "max_hdr_bytes": 16_384,
    "max_body_bytes": 1_048_320,
    "max_attachments_per_msg": 1_024,
}


def test_the_registry_has_every_name_of_the_specification() -> None:
    assert set(NAMES) >= {
        "max_msg_bytes", "max_hdr_bytes", "max_body_bytes", "max_attachments_per_msg",
        "max_attachment_bytes", "max_chunk_bytes", "max_checkpoint_interval",
        "max_cap_rate_per_sec", "max_cap_rate_burst", "max_epoch_skew_sec",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "maximum"), MAXIMA.items())
def test_a_maximum_of_the_specification_is_taken_and_one_more_is_not(
    name: str, maximum: int
) -> None:
    assert getattr(Limits(**{name: maximum}), name) == maximum
    with pytest.raises(BadLimit):
        Limits(**{name: maximum + 1})


@given(st.sampled_from(sorted(MAXIMA)), st.data())
def test_a_maximum_may_be_lowered(name: str, data: st.DataObject) -> None:
    value = data.draw(st.integers(1, MAXIMA[name]))
    assert getattr(Limits(**{name: value}), name) == value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-1, True, 1.0, 1.5, "1", None, b"1"], ids=repr)
def test_refuses_what_is_no_whole_number(name: str, value: Any) -> None:
    with pytest.raises(BadLimit):
        Limits(**{name: value})


@pytest.mark.parametrize("name", [name for name in NAMES if name != "max_epoch_skew_sec"])
def test_refuses_a_limit_of_nothing(name: str) -> None:
    with pytest.raises(BadLimit):
        Limits(**{name: 0})


@given(st.integers(1, 1_048_576), st.integers(-2, 2))
def test_a_chunk_holds_at_least_the_largest_entry(max_msg_bytes: int, off: int) -> None:
    largest = 82 + max_msg_bytes + 256
    if off < 0:
        with pytest.raises(BadLimit):
            Limits(max_msg_bytes=max_msg_bytes, max_chunk_bytes=largest + off)
    else:
        limits = Limits(max_msg_bytes=max_msg_bytes, max_chunk_bytes=largest + off)
        assert limits.largest_entry == largest


def test_limits_do_not_change() -> None:
    limits: Any = Limits()
    with pytest.raises(FrozenInstanceError):
        limits.max_msg_bytes = 1
