"""When something happened, as logs write it: a number, or ISO-8601 with its offset."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from recorder.emit.observation import NoEvent

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_SECOND_60: Final = re.compile(r"([T ][0-9]{2}:?[0-9]{2}:?)60(?=[.,Z+-]|$)")
_LAST_SECOND: Final = (23, 59, 59)


class TimeUnit(Enum):
    """What a number counts."""

    MS = "ms"
    SECONDS = "s"


def event_time(value: Any, unit: TimeUnit) -> int:
    """Milliseconds since 1970; what is finer is cut off."""
    if type(value) is str:
        return _of_text(value)
    if type(value) is int:
        return value if unit is TimeUnit.MS else value * 1000
    if type(value) is float and math.isfinite(value) and unit is TimeUnit.SECONDS:
        return math.floor(Fraction(repr(value)) * 1000)
    raise NoEvent(f"{value!r} is no time: milliseconds, or text like 2025-11-19T03:20:00.000Z")


def _of_text(text: str) -> int:
    moment = _parsed(text)
    if moment.tzinfo is None:
        raise NoEvent(f"{text!r} does not say its offset; end it with Z or like +01:00")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        moment = _leap_second(text)
        if moment is None:
            raise NoEvent(f"{text!r} is no time like 2025-11-19T03:20:00.000Z") from error
        return moment


def _leap_second(text: str) -> datetime | None:
    """Second 60 of a UTC day is, as in POSIX time, second 0 of the next one."""
    before = _SECOND_60.sub(r"\g<1>59", text, count=1)
    try:
        moment = datetime.fromisoformat(before)
    except ValueError:
        return None
    if before == text or moment.tzinfo is None:
        return None
    utc = moment.astimezone(UTC)
    return moment + _SECOND if (utc.hour, utc.minute, utc.second) == _LAST_SECOND else None
