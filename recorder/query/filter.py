"""The filter, fields and aggregate of a query (Query API 4.2, 4.3).

A filter decides whether an event is part of the result. Fields name members of an event, or paths
into its payload. An aggregate groups by fields and computes metrics over each group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from recorder import timestamp
from recorder.service.errors import invalid
from veen.errors import Malformed
from veen.events import MAX_NAME_BYTES
from veen.wire.cbor import MAX_DEPTH

STREAM: Final = "stream"
SEQ: Final = "hub_commit_seq"
COMMIT_TIME: Final = "hub_commit_time"
SUBJECT: Final = "subject_id"
PRINCIPAL: Final = "principal_id"
EVENT_TYPE: Final = "event_type"
EVENT_TIME: Final = "event_time"
ORIGIN: Final = "origin"
PAYLOAD: Final = "payload"
RECEIPT: Final = "receipt_id"

ALL: Final = (
    STREAM, SEQ, COMMIT_TIME, SUBJECT, PRINCIPAL, EVENT_TYPE, EVENT_TIME, ORIGIN, PAYLOAD, RECEIPT,
)  # fmt: skip
"""The fields of ["*"], in this order."""

SOURCE_HUB: Final = "source_hub_id"
SOURCE_STREAM: Final = "source_stream"
SOURCE_SEQ: Final = "source_commit_seq"
SOURCE_TIME: Final = "source_commit_time"
SOURCE_RECEIPT: Final = "source_receipt_id"

OF_SOURCE: Final = (SOURCE_HUB, SOURCE_STREAM, SOURCE_SEQ, SOURCE_TIME, SOURCE_RECEIPT)
"""The position of an imported event at its origin; ["*"] has these too if the scope has an import/
stream. They are null for an event that was recorded at the queried hub.
"""

_PATH: Final = PAYLOAD + "."
_MAX_BYTES: Final = 1024
_ESCAPED: Final = ".\\*"
_FILTER_KEYS: Final = ("event_type", "origin", "principal_id", "subject_id", "time")
_TIME_KEYS: Final = ("from", "to")
_MAX_TYPES: Final = 1024
_PRINCIPAL_DIGITS: Final = 64
_METRIC_KEYS: Final = ("group_by", "metrics")
_MAX_GROUP_BY: Final = 16
_MAX_METRICS: Final = 64
_CALL: Final = re.compile(r"(min|max|sum|avg)\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class QueryField:
    """A field of an event; ``text`` is its canonical name, ``path`` leads into the payload."""

    text: str
    path: tuple[str, ...] = ()

    @property
    def is_path(self) -> bool:
        return bool(self.path)

    def within(self, payload: Any) -> Any:
        """Return the value at the path, or None."""
        value = payload
        for element in self.path:
            value = _step(value, element)
        return value


def read_field(value: Any, place: str) -> QueryField:
    """Parse a field name, or raise BadDescriptor; ``payload.*`` is an alias of ``payload``."""
    if not isinstance(value, str):
        raise invalid(f"{place}: expected the name of a field, got {value!r:.60}")
    if len(value.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise invalid(
            f"{place}: expected the name of a field of at most {_MAX_BYTES} bytes, got more"
        )
    if value in ALL or value in OF_SOURCE:
        return QueryField(value)
    if value == _PATH + "*":
        return QueryField(PAYLOAD)
    if not value.startswith(_PATH):
        raise invalid(
            f"{place}: expected {', '.join((*ALL, *OF_SOURCE))} or payload.<path>, got "
            f"{value!r:.80}"
        )
    return QueryField(value, _split(value.removeprefix(_PATH), place))


def _split(text: str, place: str) -> tuple[str, ...]:
    elements, element, rest = [], "", iter(text)
    for letter in rest:
        if letter == ".":
            elements.append(element)
            element = ""
        elif letter == "*":
            raise invalid(
                f"{place} has a wildcard in payload.{text:.80}; a key of that name is \\*"
            )
        else:
            element += _unescaped(next(rest, ""), place) if letter == "\\" else letter
    elements.append(element)
    if "" in elements:
        raise invalid(f"{place} has an empty step in payload.{text:.80}")
    if len(elements) > MAX_DEPTH:
        raise invalid(f"{place}: expected a path of at most {MAX_DEPTH} levels, got more")
    return tuple(elements)


def _unescaped(letter: str, place: str) -> str:
    if not letter or letter not in _ESCAPED:
        raise invalid(f"{place}: expected . \\ or * after a backslash, got {letter!r}")
    return letter


def _step(value: Any, element: str) -> Any:
    if isinstance(value, dict):
        return value.get(element)
    if isinstance(value, list) and _is_index(element) and int(element) < len(value):
        return value[int(element)]
    return None


def _is_index(element: str) -> bool:
    """Digits without a leading zero; no payload has an index of more than nine digits."""
    plain = element.isascii() and element.isdigit() and len(element) <= 9
    return plain and (element == "0" or element[0] != "0")


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
        """The first hub_ts within the filter."""
        return -(-(self.from_ms or 0) // 1000)

    @property
    def last_second(self) -> int | None:
        """The last hub_ts within the filter; None without an upper bound."""
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
    """Parse a filter, or raise BadDescriptor; ignoring an unknown key would widen the result."""
    document = members(value, "filter", _FILTER_KEYS)
    time = document.get("time")
    time = members({} if time is None else time, "filter.time", _TIME_KEYS)
    start, end = _time(time, "from"), _time(time, "to")
    if start is not None and end is not None and start > end:
        raise invalid("filter.time.from is after filter.time.to; no event is between them")
    return Filter(
        subject_id=_name(document.get("subject_id"), "filter.subject_id"),
        event_type=_types(document.get("event_type")),
        origin=_name(document.get("origin"), "filter.origin"),
        principal_id=_principal(document.get("principal_id")),
        from_ms=start,
        to_ms=end,
    )


def members(value: Any, place: str, keys: Iterable[str]) -> dict[str, Any]:
    """A JSON object with no other keys than these."""
    if not isinstance(value, dict):
        raise invalid(f"{place} must be an object")
    known = sorted(keys)
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise invalid(f"{place}: unknown key {unknown[0]!r:.80}; expected {', '.join(known)}")
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
    names = [_name(kind, "filter.event_type") for kind in value]
    types = {name for name in names if name is not None}
    if None in names:
        raise invalid("filter.event_type holds null; every event has a type")
    return tuple(sorted(types, key=_utf8))


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


class Function(Enum):
    COUNT = "count"
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    AVG = "avg"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; ``field`` is None for count, else event_time or a path into the payload."""

    function: Function
    field: QueryField | None = None

    @property
    def text(self) -> str:
        """The canonical name, which is also its key in a row."""
        name = self.function.value
        return name if self.field is None else f"{name}({self.field.text})"


@dataclass(frozen=True, slots=True)
class Aggregate:
    group_by: tuple[QueryField, ...]
    metrics: tuple[Metric, ...]

    @property
    def fields(self) -> tuple[QueryField, ...]:
        """Every field that is read."""
        measured = (metric.field for metric in self.metrics)
        return (*self.group_by, *(field for field in measured if field is not None))

    def document(self) -> dict[str, Any]:
        return {
            "group_by": [field.text for field in self.group_by],
            "metrics": [metric.text for metric in self.metrics],
        }


def read_aggregate(value: Any) -> Aggregate:
    document = members(value, "aggregate", _METRIC_KEYS)
    group_by, metrics = document.get("group_by"), document.get("metrics")
    group_by = [] if group_by is None else group_by
    if not isinstance(group_by, list) or len(group_by) > _MAX_GROUP_BY:
        raise invalid(f"aggregate.group_by must be a list of at most {_MAX_GROUP_BY} fields")
    if not isinstance(metrics, list) or not 1 <= len(metrics) <= _MAX_METRICS:
        raise invalid(f"aggregate.metrics must be a list of 1 to {_MAX_METRICS} metrics")
    fields = tuple(_key(name) for name in group_by)
    measures = tuple(_metric(metric) for metric in metrics)
    verify_unique([field.text for field in fields], "aggregate.group_by")
    verify_unique([metric.text for metric in measures], "aggregate.metrics")
    return Aggregate(fields, measures)


def verify_unique(texts: list[str], place: str) -> None:
    if len(set(texts)) != len(texts):
        twice = next(text for at, text in enumerate(texts) if text in texts[:at])
        raise invalid(f"{place} names {twice!r:.80} twice")


def _key(value: Any) -> QueryField:
    field = read_field(value, "aggregate.group_by")
    if field.text == PAYLOAD:
        raise invalid("aggregate.group_by names all of the payload; name a path in it")
    return field


def _metric(value: Any) -> Metric:
    if value == Function.COUNT.value:
        return Metric(Function.COUNT)
    call = _CALL.fullmatch(value) if isinstance(value, str) else None
    if call is None:
        raise invalid(
            "aggregate.metrics: expected count, or min, max, sum or avg of (event_time) or "
            f"(payload.<path>), got {value!r:.80}"
        )
    field = read_field(call[2], "aggregate.metrics")
    if field.text != EVENT_TIME and not field.is_path:
        raise invalid(f"aggregate.metrics: expected a numeric field, got {field.text}")
    return Metric(Function(call[1]), field)
