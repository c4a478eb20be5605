"""Selection: which entries a query takes, and the row of each (Query API 4.2, 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from recorder import timestamp
from recorder.query import field as names
from recorder.query.descriptor import Descriptor
from recorder.query.entry import Entry, receipt_id
from recorder.query.field import Field
from recorder.query.filter import Filter
from recorder.query.json_text import SAFE_INTEGER
from veen.errors import Malformed
from veen.record_event import RecordEvent

Row = dict[str, Any]


def matches(descriptor: Descriptor, entry: Entry) -> bool:
    """Whether the entry is an event of the scope that the filter lets through."""
    if entry.event is None or entry.stream not in descriptor.scope:
        return False
    return descriptor.filter.has_time(entry.commit_ts) and _passes(descriptor.filter, entry.event)


def row(descriptor: Descriptor, entry: Entry) -> Row:
    """The projection of an entry that matches; each field stands under its own name."""
    values = values_of(descriptor.fields, entry, payload_for(descriptor.fields, entry))
    return dict(zip(descriptor.projection, values, strict=True))


def values_of(fields: Sequence[Field], entry: Entry, payload: Any) -> list[Any]:
    """What an event says in these fields, as JSON; ``payload`` is that of ``payload_for``."""
    event = event_of(entry)
    return [_value(field, entry, event, payload) for field in fields]


def payload_for(fields: Iterable[Field], entry: Entry) -> Any:
    """The payload, decoded only when one of the fields looks into it."""
    deep = any(field.is_path or field.text == names.PAYLOAD for field in fields)
    return event_of(entry).value() if deep else None


def event_of(entry: Entry) -> RecordEvent:
    if entry.event is None:
        raise Malformed(f"{entry.stream} {entry.seq} is no event and has no fields")
    return entry.event


def as_json(value: Any) -> Any:
    """A value of a payload as canonical JSON can hold it: larger integers become decimal text."""
    if isinstance(value, dict):
        return {key: as_json(element) for key, element in value.items()}
    if isinstance(value, list):
        return [as_json(element) for element in value]
    if type(value) is int and abs(value) > SAFE_INTEGER:
        return str(value)
    return value


def _passes(wanted: Filter, event: RecordEvent) -> bool:
    return (
        wanted.subject_id in (None, event.subject_id)
        and wanted.origin in (None, event.origin)
        and wanted.principal_id in (None, event.principal_id)
        and (wanted.event_type is None or event.event_type in wanted.event_type)
    )


def _value(field: Field, entry: Entry, event: RecordEvent, payload: Any) -> Any:
    if field.is_path or field.text == names.PAYLOAD:
        return as_json(field.within(payload))
    return _PLAIN[field.text](entry, event)


_PLAIN: Final[dict[str, Callable[[Entry, RecordEvent], Any]]] = {
    names.STREAM: lambda entry, _: entry.stream,
    names.SEQ: lambda entry, _: as_json(entry.seq),
    names.COMMIT_TIME: lambda entry, _: timestamp.render(entry.hub_ts * 1000),
    names.SUBJECT: lambda _, event: event.subject_id,
    names.PRINCIPAL: lambda _, event: event.principal_id.hex(),
    names.EVENT_TYPE: lambda _, event: event.event_type,
    names.EVENT_TIME: lambda _, event: timestamp.render(event.event_time),
    names.ORIGIN: lambda _, event: event.origin,
    names.RECEIPT: lambda entry, _: entry.receipt_id,
    names.SOURCE_HUB: lambda entry, _: entry.source and entry.source.hub_id.hex(),
    names.SOURCE_STREAM: lambda entry, _: entry.source and entry.source.stream,
    names.SOURCE_SEQ: lambda entry, _: entry.source and as_json(entry.source.seq),
    names.SOURCE_TIME: lambda entry, _: (
        entry.source and timestamp.render(entry.source.hub_ts * 1000)
    ),
    names.SOURCE_RECEIPT: lambda entry, _: entry.source and receipt_id(entry.source.leaf_hash),
}
"""Of an event that was recorded here, what names a place at an origin is null."""
