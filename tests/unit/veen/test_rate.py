"""The token bucket against a simulation that lives through every second (spec 6)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veen.captoken import Rate, TokenBucket

RATES = st.builds(Rate, per_sec=st.integers(0, 5), burst=st.integers(0, 8))
STEPS = st.lists(st.integers(-3, 6), max_size=60)


def accepted_by_simulation(rate: Rate, times: list[int]) -> list[bool]:
    """Which messages pass, one second after another and never back."""
    tokens, clock, verdicts = rate.burst, times[0] if times else 0, []
    for now in times:
        while clock < now:
            clock += 1
            tokens = min(rate.burst, tokens + rate.per_sec)
        verdicts.append(tokens > 0)
        tokens -= tokens > 0
    return verdicts


def accepted_by_bucket(rate: Rate, times: list[int]) -> list[bool]:
    bucket, verdicts = TokenBucket.full(rate, times[0] if times else 0), []
    for now in times:
        bucket = bucket.refilled(rate, now)
        debited = bucket.debited()
        verdicts.append(debited is not None)
        bucket = debited or bucket
    return verdicts


def times_of(steps: list[int]) -> list[int]:
    now, times = 1_000_000, []
    for step in steps:
        now += step
        times.append(now)
    return times


@given(RATES, STEPS)
def test_accepts_what_the_simulation_accepts_whatever_the_clock_does(
    rate: Rate, steps: list[int]
) -> None:
    times = times_of(steps)
    assert accepted_by_bucket(rate, times) == accepted_by_simulation(rate, times)


@given(RATES, STEPS)
def test_only_accepted_messages_rebuild_the_bucket(rate: Rate, steps: list[int]) -> None:
    times = times_of([abs(step) for step in steps])
    verdicts = accepted_by_bucket(rate, times)
    receipts = [now for now, passed in zip(times, verdicts, strict=True) if passed]
    start = times[0] if times else 0
    live = rebuilt = TokenBucket.full(rate, start)
    for now in times:
        live = live.refilled(rate, now)
        live = live.debited() or live
    for now in receipts:
        rebuilt = rebuilt.refilled(rate, now).debited() or rebuilt
    end = (times or [0])[-1]
    assert rebuilt.refilled(rate, end) == live.refilled(rate, end)


@given(RATES, st.integers(0, 8), st.integers(0, 100), st.integers(0, 100))
def test_a_clock_that_went_back_refills_nothing(
    rate: Rate, tokens: int, at: int, back: int
) -> None:
    bucket = TokenBucket(tokens, at)
    assert bucket.refilled(rate, at - back) == bucket


@given(RATES, st.integers(0, 100), st.integers(0, 2**64 - 1))
def test_a_bucket_never_holds_more_than_its_burst(rate: Rate, at: int, now: int) -> None:
    assert TokenBucket.full(rate, at).refilled(rate, now).tokens <= rate.burst


@given(RATES, st.integers(0, 50), st.integers(0, 50))
def test_waiting_in_two_steps_is_waiting_once(rate: Rate, first: int, second: int) -> None:
    empty = TokenBucket(0, 0)
    twice = empty.refilled(rate, first).refilled(rate, first + second)
    assert twice == empty.refilled(rate, first + second)


@given(RATES.filter(lambda rate: rate.burst > 0), st.integers(0, 3))
def test_the_announced_wait_is_the_least_that_helps(rate: Rate, tokens: int) -> None:
    bucket = TokenBucket(tokens, 100)
    wait = bucket.seconds_until_token(rate)
    if wait is None:
        assert not bucket.refilled(rate, 10**9).tokens
    else:
        assert bucket.refilled(rate, 100 + wait).debited() is not None
        assert wait == 0 or bucket.refilled(rate, 99 + wait).debited() is None


@given(st.integers(0, 5))
def test_a_bucket_without_room_is_never_refilled(per_sec: int) -> None:
    rate = Rate(per_sec=per_sec, burst=0)
    assert TokenBucket(0, 0).seconds_until_token(rate) is None
