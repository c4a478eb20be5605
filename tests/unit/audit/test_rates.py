"""A rate spans labels and chunks: whatever is too fast is named, in whatever chunk it lies."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.audit.audit_files import laid_out
from support.audit.audit_history import STREAMS, History, a_key
from support.audit.audit_pool import audited
from veen.captoken import Rate


def bursts(rate: Rate, sends: list[tuple[int, int]]) -> Any:
    """One client that sends (stream, seconds to wait) one after another."""
    history = History()
    client = a_key("client")
    token = history.authorize(client, rate)
    for stream, wait in sends:
        history.send(client, STREAMS[stream], token)
        history.now += wait
    return history


@pytest.mark.parametrize("longest", [1, 2, 3, 100])
def test_what_is_too_fast_over_two_labels_is_named(longest: int) -> None:
    sends = [(0, 0), (1, 0), (0, 0), (1, 1), (0, 0), (1, 5), (0, 0), (0, 0), (0, 0), (0, 0)]
    history = bursts(Rate(per_sec=1, burst=3), sends)
    files = laid_out(history, lambda: random.Random(longest).randint(1, longest))
    faults = audited(files).faults
    assert {fault.code for fault in faults} == {"I7"}
    plain, other = (history.label(STREAMS[number]).hex() for number in (0, 1))
    late = sorted([plain, other])[1]
    named = [(fault.file.split("-")[1], fault.stream_seq) for fault in faults]
    # Of one second, the later label and the later entry are blamed.
    first = (late, 2)
    assert sorted(named) == sorted([first, (late, 3), (plain, 7)])
    for fault in faults:
        raw = files[fault.file][fault.offset :]
        assert int.from_bytes(raw[34:42], "big") == fault.stream_seq


def test_a_rate_that_is_kept_is_no_fault() -> None:
    history = bursts(Rate(per_sec=2, burst=2), [(0, 0), (0, 1)] * 20)
    assert audited(laid_out(history, lambda: 3)).faults == ()


def test_many_uses_are_kept_as_counts() -> None:
    history = bursts(Rate(per_sec=1, burst=1_000), [(0, 0)] * 300)
    assert audited(laid_out(history, lambda: 50)).faults == ()
