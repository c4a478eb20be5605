"""One line of JSON as an observation: which of its fields say what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recorder.emit.event_time import TimeUnit, event_time
from recorder.emit.observation import NoEvent, Observation
from veen import json_body
from veen.errors import Malformed


@dataclass(frozen=True, slots=True, kw_only=True)
class LineForm:
    """Names of the fields, and what holds for a line that lacks one.

    With ``payload`` a line has these fields and no others; without, whatever else it has is the
    payload.
    """

    event_type: str = "event_type"
    subject_id: str = "subject_id"
    origin: str = "origin"
    event_time: str = "event_time"
    payload: str | None = "payload"
    time_unit: TimeUnit = TimeUnit.MS
    default_type: str | None = None
    default_subject: str | None = None
    default_origin: str | None = None

    def read(self, raw: bytes) -> Observation:
        """The observation that a line is; NoEvent says what is wrong with it."""
        try:
            value = json_body.parse(raw)
        except Malformed as error:
            raise NoEvent(str(error)) from error
        if not isinstance(value, dict):
            raise NoEvent(f"a JSON object is due, not a {type(value).__name__}")
        when = value.pop(self.event_time, None)
        return Observation(
            event_type=_text(value, self.event_type, self.default_type),
            subject_id=_text(value, self.subject_id, self.default_subject),
            origin=_text(value, self.origin, self.default_origin),
            event_time=None if when is None else event_time(when, self.time_unit),
            payload=value if self.payload is None else self._only_payload(value),
        )

    def _only_payload(self, left: dict[str, Any]) -> Any:
        if self.payload not in left:
            raise NoEvent(f"{self.payload!r} is missing")
        payload = left.pop(self.payload)
        if left:
            names = (self.event_type, self.subject_id, self.origin, self.event_time, self.payload)
            raise NoEvent(f"unknown key {min(left)!r}; known are {', '.join(names)}")
        return payload


def _text(value: dict[str, Any], name: str, default: str | None) -> str:
    found = value.pop(name, default)
    if found is None:
        raise NoEvent(f"{name!r} is missing")
    if type(found) is not str or not found:
        raise NoEvent(f"{name!r} = {found!r:.80}: a text that is not empty is due")
    return found
