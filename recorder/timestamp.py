"""Timestamps as people, queries and logs write them.

Queries use ISO 8601 in UTC with milliseconds; logs use a number, or ISO 8601 with an offset.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from recorder.emit.emitter import NoEvent
from veen.errors import Malformed
from veen.events import MAX_TIME_MS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_SECOND_60: Final = re.compile(r"([T ][0-9]{2}:?[0-9]{2}:?)60(?=[.,Z+-]|$)")
_LAST_SECOND: Final = (23, 59, 59)
_FORM: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,3}))?Z"
)


class TimeUnit(Enum):
    """The unit of a numeric time."""

    MS = "ms"
    SECONDS = "s"


def event_time(value: Any, unit: TimeUnit) -> int:
    """Milliseconds since 1970, rounded down."""
    if type(value) is str:
        return _of_text(value)
    if type(value) is int:
        return value if unit is TimeUnit.MS else value * 1000
    if type(value) is float and math.isfinite(value) and unit is TimeUnit.SECONDS:
        return math.floor(Fraction(repr(value)) * 1000)
    raise NoEvent(f"expected milliseconds, or text like 2025-11-19T03:20:00.000Z, got {value!r}")


def _of_text(text: str) -> int:
    moment = _parsed(text)
    if moment.tzinfo is None:
        raise NoEvent(f"{text!r}: expected an offset, Z or like +01:00, at its end")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        moment = _leap_second(text)
        if moment is None:
            raise NoEvent(f"expected a time like 2025-11-19T03:20:00.000Z, got {text!r}") from error
        return moment


def _leap_second(text: str) -> datetime | None:
    """Second 60 of a UTC day is second 0 of the next day, as in POSIX time."""
    before = _SECOND_60.sub(r"\g<1>59", text, count=1)
    try:
        moment = datetime.fromisoformat(before)
    except ValueError:
        return None
    if before == text or moment.tzinfo is None:
        return None
    utc = moment.astimezone(UTC)
    return moment + _SECOND if (utc.hour, utc.minute, utc.second) == _LAST_SECOND else None


def render(ms: int) -> str:
    """Format as ``2025-11-19T03:20:00.000Z``; Malformed before 1970 and after the year 9999."""
    if not 0 <= ms <= MAX_TIME_MS:
        raise Malformed(f"expected a time from 1970 to 9999, got {ms} ms")
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    """Cached, since the rows of a result come from few different seconds."""
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


def parse(text: str) -> int:
    """Parse the format of ``render``, with up to three decimals, to milliseconds since 1970."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise Malformed(f"expected a time like 2025-11-19T03:20:00.000Z, got {text!r}")
    *numbers, decimals = match.groups()
    try:
        moment = datetime(*map(int, numbers), tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError as error:
        raise Malformed(f"expected a time, got {text!r}: {error}") from error
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if seconds < 0:
        raise Malformed(f"expected a time from 1970 on, got {text!r}")
    return seconds * 1000 + int((decimals or "").ljust(3, "0"))
