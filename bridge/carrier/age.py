"""How old a checkpoint is, in words; whether that is too old is for people and their policies."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((86_400, "day"), (3_600, "hour"))


def time_told(seconds: int) -> str:
    """In the largest unit of which there is one, cut off: 3 days."""
    for size, unit in _UNITS:
        count = seconds // size
        if count:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than an hour"


def age_told(seconds: int) -> str:
    if seconds < 0:
        return f"{time_told(-seconds)} ahead of this clock"
    return f"{time_told(seconds)} old"


def too_old(age_sec: int | None, most_sec: int | None) -> str:
    """What is said of a checkpoint that is older than a policy allows; nothing of any other."""
    if age_sec is None or most_sec is None or age_sec <= most_sec:
        return ""
    return f"its checkpoint is {age_told(age_sec)}, more than {time_told(most_sec)}"
