"""A recorded log in memory, with real messages, receipts and proofs, and queries over it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from recorder.query.descriptor import Descriptor, normalise
from recorder.query.select import QueryEntry
from support.long_form import LONG
from support.recorder import query_histories, recorded_log
from veen.events import RecordEvent
from veen.wire.body import AnyItem
from veen.wire.canonical_json import json_to_cbor

LONG_FACTOR = 20 if LONG else 1


def as_event(made: Any) -> RecordEvent:
    text = json.dumps(made.payload, ensure_ascii=False)
    return RecordEvent(
        subject_id=made.subject_id,
        principal_id=bytes.fromhex(made.principal_id),
        event_type=made.event_type,
        event_time=made.event_time,
        origin=made.origin,
        payload=AnyItem(json_to_cbor(text)),
    )


def as_entry(made: Any) -> QueryEntry:
    event = as_event(made) if made.is_event else None
    return QueryEntry(made.stream, made.seq, made.hub_ts, bytes.fromhex(made.leaf_hash), event)


@pytest.fixture(scope="session")
def long_factor() -> int:
    return LONG_FACTOR


@pytest.fixture(scope="session")
def entries_of() -> Callable[[Iterable[Any]], list[QueryEntry]]:
    """Entries as an engine hands them over, in the order of rows."""
    return lambda history: sorted(map(as_entry, history), key=lambda entry: entry.order_key)


@pytest.fixture(scope="session")
def new_log() -> Callable[[Sequence[Any]], Any]:
    """A log of real messages for a history; its leaves are not those of the history."""
    return lambda history: recorded_log.RecordedLog(history, as_event)


@pytest.fixture(scope="session")
def small_log(new_log: Callable[..., Any]) -> Any:
    return new_log(query_histories.history(7, 60))


@pytest.fixture(scope="session")
def a_query() -> Callable[..., dict[str, Any]]:
    """A valid descriptor; a test names only what it changes."""

    def build(**changes: Any) -> dict[str, Any]:
        whole = {
            "query_id": "q-1",
            "scope": list(query_histories.STREAMS),
            "filter": {},
            "projection": ["*"],
            "evidence": {"mode": "none"},
        } | changes
        return {key: value for key, value in whole.items() if value is not ...}

    return build


@pytest.fixture(scope="session")
def a_descriptor(a_query: Callable[..., dict[str, Any]]) -> Callable[..., Descriptor]:
    return lambda **changes: normalise(a_query(**changes), query_id_if_missing="q-made")
