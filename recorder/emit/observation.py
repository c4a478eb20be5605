"""An observation: what a program says has happened, before it is a recorder event (SDR0 3.2.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from veen.errors import VeenError


class NoEvent(VeenError):
    """What was to be recorded cannot be, and why; nothing of it was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """``payload`` is a JSON value; without ``event_time`` (ms since 1970) it happened now."""

    event_type: str
    subject_id: str
    origin: str
    payload: Any = field(repr=False)
    event_time: int | None = None
