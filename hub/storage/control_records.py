"""What the records of the control log mean for the index and for the registry in memory."""

from __future__ import annotations

from hub.registry import Registry
from hub.storage.index import Index, TokenRow
from veen.control import ControlRecord


def index_control(
    index: Index, registry: Registry, record: ControlRecord, seq: int, hub_ts: int
) -> None:
    """Write a record to the index, within a transaction; the registry is only read.

    The registry follows by ``register_streams`` once the transaction is committed: a stream that
    only memory knows would be acknowledged, and gone after a restart.
    """
    token = record.token()
    if token is not None:
        index.add_token(TokenRow(token.auth_ref(), record.body, hub_ts, seq))
    for stream in record.streams():
        if registry.is_news(stream) or not stream.is_nameless():
            index.add_stream(stream.stream_id(), stream.name, stream.encode())


def register_streams(registry: Registry, record: ControlRecord) -> None:
    """Make the streams of a committed record known."""
    for stream in record.streams():
        registry.add(stream)


def learn_control(
    index: Index, registry: Registry, record: ControlRecord, seq: int, hub_ts: int
) -> None:
    """Both, for whoever gives up altogether when the transaction fails."""
    index_control(index, registry, record, seq, hub_ts)
    register_streams(registry, record)
