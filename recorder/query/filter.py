"""The filter of a query: what an event must say to be part of the result (Query API 4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from recorder import timestamp
from recorder.query.refusal import invalid
from veen.errors import Malformed
from veen.record_event import MAX_NAME_BYTES

_KEYS: Final = ("event_type", "origin", "principal_id", "subject_id", "time")
_TIME_KEYS: Final = ("from", "to")
_MAX_TYPES: Final = 1024
_PRINCIPAL_DIGITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """None does not constrain. Times are hub_commit_time in milliseconds, both ends included."""

    subject_id: str | None = None
    event_type: tuple[str, ...] | None = None
    origin: str | None = None
    principal_id: bytes | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def first_second(self) -> int:
        """The first hub_ts that passes."""
        return -(-(self.from_ms or 0) // 1000)

    @property
    def last_second(self) -> int | None:
        """The last hub_ts that passes; None when all later ones do."""
        return None if self.to_ms is None else self.to_ms // 1000

    def has_time(self, hub_ts: int) -> bool:
        last = self.last_second
        return self.first_second <= hub_ts and (last is None or hub_ts <= last)

    def document(self) -> dict[str, Any]:
        return {
            "subject_id": self.subject_id,
            "event_type": None if self.event_type is None else list(self.event_type),
            "origin": self.origin,
            "principal_id": None if self.principal_id is None else self.principal_id.hex(),
            "time": {"from": _rendered(self.from_ms), "to": _rendered(self.to_ms)},
        }


def read_filter(value: Any) -> Filter:
    """A filter, or BadDescriptor: to ignore a key that is not known would widen the result."""
    found = members(value, "filter", _KEYS)
    time = found.get("time")
    time = members({} if time is None else time, "filter.time", _TIME_KEYS)
    start, end = _time(time, "from"), _time(time, "to")
    if start is not None and end is not None and start > end:
        raise invalid("filter.time.from is after filter.time.to; no event is between them")
    return Filter(
        subject_id=_name(found.get("subject_id"), "filter.subject_id"),
        event_type=_types(found.get("event_type")),
        origin=_name(found.get("origin"), "filter.origin"),
        principal_id=_principal(found.get("principal_id")),
        from_ms=start,
        to_ms=end,
    )


def members(value: Any, place: str, keys: Iterable[str]) -> dict[str, Any]:
    """A JSON object that has none but these keys."""
    if not isinstance(value, dict):
        raise invalid(f"{place} must be an object")
    known = sorted(keys)
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise invalid(f"{place} has no {unknown[0]!r:.80}; its keys are {', '.join(known)}")
    return value


def _name(value: Any, place: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid(f"{place} must be a text or null")
    if not 1 <= len(value.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES:
        raise invalid(f"{place} must have 1 to {MAX_NAME_BYTES} bytes, as in every event")
    return value


def _types(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_TYPES:
        raise invalid(f"filter.event_type must be null or a list of 1 to {_MAX_TYPES} types")
    found = [_name(one, "filter.event_type") for one in value]
    named = {one for one in found if one is not None}
    if None in found:
        raise invalid("filter.event_type holds null; every event has a type")
    return tuple(sorted(named, key=_utf8))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _principal(value: Any) -> bytes | None:
    if value is None:
        return None
    digits = isinstance(value, str) and len(value) == _PRINCIPAL_DIGITS
    if not digits or set(value) - set("0123456789abcdef"):
        raise invalid("filter.principal_id must be 64 lowercase hex digits or null")
    return bytes.fromhex(value)


def _time(value: dict[str, Any], key: str) -> int | None:
    text = value.get(key)
    if text is None:
        return None
    if not isinstance(text, str):
        raise invalid(f"filter.time.{key} must be a timestamp or null")
    try:
        return timestamp.parse(text)
    except Malformed as error:
        raise invalid(f"filter.time.{key}: {error}") from error


def _rendered(ms: int | None) -> str | None:
    return None if ms is None else timestamp.render(ms)
