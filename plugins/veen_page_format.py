"""Formatting of numbers, times and links for the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_LONGEST: Final = 300
_BRIEF: Final = 48
_REASONS: Final = ("what", "reason", "detail", "told", "runbook", "obstacle")
GOOD: Final = frozenset(
    {"verified", "imported", "whole", "signed", "pushed", "anchored", "intact", "heartbeat"}
    | {"exported", "recorded", "completed", "pruned", "trusted", "approved", "ok", "over"}
)
BAD: Final = frozenset(
    {"quarantined", "rejected", "refused", "faults", "failed", "raised", "frozen", "gaps"}
    | {"partial", "untrusted", "damaged"}
)


def age(seconds: int) -> str:
    """A duration in the largest unit of which there are at least two, or the smallest."""
    for size, name in _UNITS:
        if seconds >= 2 * size or size == 1:
            count = max(seconds // size, 0)
            return f"{count} {name}{'' if count == 1 else 's'}"
    return ""


def moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def short(text: str) -> str:
    """A prefix of an id that is enough to recognise it."""
    return text if len(text) <= 20 else f"{text[:16]}…"


def shade(state: str) -> str:
    """The CSS class of a state; neutral for an unknown state."""
    if state.lower() in GOOD:
        return "good"
    return "bad" if state.lower() in BAD else "open"


def plain(value: Any) -> str:
    """A value of a summary as a line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def brief(summary: Mapping[str, Any]) -> str:
    """The numbers, short texts and reasons of a summary, for a row."""
    shown = [
        f"{name.replace('_', ' ')} {plain(value)}"
        for name, value in summary.items()
        if not isinstance(value, dict | list) and value is not None
        if len(plain(value)) <= _BRIEF or name in _REASONS
    ]
    return ", ".join(shown[:6])


def run_path(dag_id: str, run_id: str) -> str:
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def task_path(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    return f"{run_path(dag_id, run_id)}/tasks/{quote(task_id, safe='')}{mapped}"


def part(text: str) -> str:
    """A URL path segment."""
    return quote(text, safe="")
