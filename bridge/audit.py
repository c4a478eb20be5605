"""The audit log of one side of a bridge: entries are kept until they are in it (AGB0 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from bridge.audit_events import AuditEvent, parse
from veen import json_body
from veen.client.client import Client
from veen.client.pair import Pair
from veen.errors import Malformed, Undecryptable, VeenError
from veen.overlay.body import AnyItem
from veen.record_event import SCHEMA, RecordEvent, read_event

Clock = Callable[[], int]
"""Milliseconds since 1970."""


class AuditPending(VeenError):
    """An entry is on disk and not in the log yet; nothing may count as done before it is."""


class AuditUnread(VeenError):
    """An entry of the log that this identity cannot read; what it says is not to be guessed."""


class Recorded(NamedTuple):
    """An entry at its place in the log."""

    seq: int
    hub_ts: int
    event: AuditEvent


class AuditWriter:
    """Writes as the client's identity, which can do nothing else; ``recipient`` is who reads."""

    def __init__(
        self, client: Client, stream: str, *, origin: str, recipient: bytes, clock: Clock
    ) -> None:
        self._client = client
        self._stream = stream
        self._origin = origin
        self._recipient = recipient
        self._clock = clock

    def settle(self) -> None:
        """Send what earlier runs have left behind, or AuditPending."""
        if self._client.pending():
            self._flush()

    def keep(self, event: AuditEvent) -> None:
        """Put an entry on disk; ``settle`` of this run or a later one sends it."""
        self._client.emit(self._stream, self.body(event), schema=SCHEMA, recipient=self._recipient)

    def record(self, event: AuditEvent) -> None:
        """The entry is in the log on return. If AuditPending is raised it is kept."""
        self.keep(event)
        self._flush()

    def body(self, event: AuditEvent) -> bytes:
        return RecordEvent(
            subject_id=event.subject_id(),
            principal_id=self._client.session.identity.client_id,
            event_type=event.KIND,
            event_time=self._clock(),
            origin=self._origin,
            payload=AnyItem(json_body.encode_value(event.document())),
        ).encode()

    def _flush(self) -> None:
        try:
            self._client.flush()
        except VeenError as error:
            raise AuditPending(
                f"{self._client.pending()} entries for {self._stream} wait on disk: {error}; "
                "run the same command again once the hub takes them"
            ) from error


def read_log(reader: Client, stream: str, from_seq: int = 1) -> Iterator[Recorded]:
    """Every entry of a log in order, each verified and opened; AuditUnread at the first that
    the reader's keys do not open or that is no entry.
    """
    for pair in reader.read(stream, from_seq=from_seq):
        yield Recorded(pair.receipt.stream_seq, pair.receipt.hub_ts, _entry(reader, stream, pair))


def _entry(reader: Client, stream: str, pair: Pair) -> AuditEvent:
    try:
        opened = reader.open_payload(pair.msg)
        return parse(read_event(opened.header.schema, opened.body, pair.msg.client_id))
    except (Malformed, Undecryptable) as error:
        raise AuditUnread(
            f"{stream}, stream_seq {pair.receipt.stream_seq}: {error}; entries must be sealed to "
            "the identity that reads the log ([audit] reader)"
        ) from error
