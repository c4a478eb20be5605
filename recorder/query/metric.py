"""The aggregate of a query: fields to group by and metrics over each group (Query API 4.3)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from recorder.query.field import EVENT_TIME, PAYLOAD, Field, read_field
from recorder.query.filter import members
from recorder.query.refusal import invalid

_KEYS: Final = ("group_by", "metrics")
_MAX_GROUP_BY: Final = 16
_MAX_METRICS: Final = 64


class Function(Enum):
    COUNT = "count"
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    AVG = "avg"


_CALL: Final = re.compile(r"(min|max|sum|avg)\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Metric:
    """``field`` is None for count, and for the others event_time or a path into the payload."""

    function: Function
    field: Field | None = None

    @property
    def text(self) -> str:
        """Its one name, which is also its key in a row."""
        name = self.function.value
        return name if self.field is None else f"{name}({self.field.text})"


@dataclass(frozen=True, slots=True)
class Aggregate:
    group_by: tuple[Field, ...]
    metrics: tuple[Metric, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """Every field that is looked at."""
        measured = (metric.field for metric in self.metrics)
        return (*self.group_by, *(field for field in measured if field is not None))

    def document(self) -> dict[str, Any]:
        return {
            "group_by": [field.text for field in self.group_by],
            "metrics": [metric.text for metric in self.metrics],
        }


def read_aggregate(value: Any) -> Aggregate:
    found = members(value, "aggregate", _KEYS)
    group_by, metrics = found.get("group_by"), found.get("metrics")
    group_by = [] if group_by is None else group_by
    if not isinstance(group_by, list) or len(group_by) > _MAX_GROUP_BY:
        raise invalid(f"aggregate.group_by must be a list of at most {_MAX_GROUP_BY} fields")
    if not isinstance(metrics, list) or not 1 <= len(metrics) <= _MAX_METRICS:
        raise invalid(f"aggregate.metrics must be a list of 1 to {_MAX_METRICS} metrics")
    fields = tuple(_key(one) for one in group_by)
    measures = tuple(_metric(one) for one in metrics)
    refuse_doubles([field.text for field in fields], "aggregate.group_by")
    refuse_doubles([metric.text for metric in measures], "aggregate.metrics")
    return Aggregate(fields, measures)


def refuse_doubles(texts: list[str], place: str) -> None:
    if len(set(texts)) != len(texts):
        twice = next(text for at, text in enumerate(texts) if text in texts[:at])
        raise invalid(f"{place} names {twice!r:.80} twice")


def _key(value: Any) -> Field:
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
            f"aggregate.metrics holds {value!r:.80}; there are count, and min, max, sum and avg "
            f"of (event_time) or (payload.<path>)"
        )
    field = read_field(call[2], "aggregate.metrics")
    if field.text != EVENT_TIME and not field.is_path:
        raise invalid(f"aggregate.metrics measures {field.text}, which is no number")
    return Metric(Function(call[1]), field)
