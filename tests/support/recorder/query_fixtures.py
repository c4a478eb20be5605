"""A recorded log in memory, with real messages, receipts and proofs, and queries over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from recorder.query.descriptor import Descriptor
    from recorder.query.select import QueryEntry


@pytest.fixture(scope="session")
def entries_of() -> Callable[[Iterable[Any]], list[QueryEntry]]:
    """Entries as an engine hands them over, in the order of rows."""
    from support.recorder.recorded_log import as_entry

    return lambda history: sorted(map(as_entry, history), key=lambda entry: entry.order_key)


@pytest.fixture(scope="session")
def new_recorded_log() -> Callable[[Sequence[Any]], Any]:
    """A log of real messages for a history; its leaves are not those of the history."""
    from support.recorder.recorded_log import RecordedLog

    return RecordedLog


@pytest.fixture(scope="session")
def small_log(new_recorded_log: Callable[..., Any]) -> Any:
    from support.recorder.query_histories import history

    return new_recorded_log(history(7, 60))


@pytest.fixture(scope="session")
def a_query() -> Callable[..., dict[str, Any]]:
    """A valid descriptor; a test names only what it changes."""
    from support.recorder.query_histories import STREAMS

    def build(**changes: Any) -> dict[str, Any]:
        whole = {
            "query_id": "q-1",
            "scope": list(STREAMS),
            "filter": {},
            "projection": ["*"],
            "evidence": {"mode": "none"},
        } | changes
        return {key: value for key, value in whole.items() if value is not ...}

    return build


@pytest.fixture(scope="session")
def a_descriptor(a_query: Callable[..., dict[str, Any]]) -> Callable[..., Descriptor]:
    from recorder.query.descriptor import normalise

    return lambda **changes: normalise(a_query(**changes), query_id_if_missing="q-made")
