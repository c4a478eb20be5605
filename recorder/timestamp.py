"""Timestamps as people and queries write them: ISO-8601 in UTC, to the millisecond."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from veen.errors import Malformed
from veen.record_event import MAX_TIME_MS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORM: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,3}))?Z"
)


def render(ms: int) -> str:
    """``2025-11-19T03:20:00.000Z``; Malformed before 1970 and after the year 9999."""
    if not 0 <= ms <= MAX_TIME_MS:
        raise Malformed(f"{ms} ms is no time from 1970 to 9999")
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    """Rows of one answer come from few different seconds."""
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


def parse(text: str) -> int:
    """Milliseconds since 1970 of such a text, with up to three decimals."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise Malformed(f"{text!r} is no time like 2025-11-19T03:20:00.000Z")
    *numbers, decimals = found.groups()
    try:
        moment = datetime(*map(int, numbers), tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError as error:
        raise Malformed(f"{text!r} is no time: {error}") from error
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if seconds < 0:
        raise Malformed(f"{text!r} is before 1970")
    return seconds * 1000 + int((decimals or "").ljust(3, "0"))
