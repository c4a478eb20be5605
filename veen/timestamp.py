"""Unix times as people read them: ISO 8601 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000: Final = 253_402_300_800


def iso8601(seconds: int) -> str | None:
    """``2025-11-19T03:20:00Z``; None outside 1970 to 9999, which the format cannot write."""
    if not 0 <= seconds < _YEAR_10000:
        return None
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def iso8601_ms(milliseconds: int) -> str | None:
    """``2025-11-19T03:20:00.000Z``; None outside 1970 to 9999."""
    seconds, rest = divmod(milliseconds, 1000)
    text = iso8601(seconds)
    return None if text is None else f"{text[:-1]}.{rest:03d}Z"


def readable_time(seconds: int) -> str:
    """``2025-11-19T03:20:00Z (1763522400)``: the time, and the number that it was made from."""
    text = iso8601(seconds)
    return str(seconds) if text is None else f"{text} ({seconds})"
