"""The audit log of one side of a bridge: entries are kept until they are in it (AGB0 4.6)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from bridge.audit_events import AuditEvent, parse
from veen import json_body
from veen.client.client import Client
from veen.client.pair import Pair
from veen.errors import Malformed, Unopenable, VeenError
from veen.foreign import Foreign
from veen.overlay.body import AnyItem
from veen.record_event import SCHEMA, RecordEvent, read_event

Clock = Callable[[], int]
"""Milliseconds since 1970."""


LeftOut = Callable[[str, int, VeenError], None]
"""Hears of a message of a log that is left out: the stream, its stream_seq, and why."""

_log = logging.getLogger(__name__)


def _warn(stream: str, seq: int, error: VeenError) -> None:
    _log.warning("%s, stream_seq %d is no entry of the log and is left out: %s", stream, seq, error)


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

    @property
    def author(self) -> bytes:
        return self._client.session.identity.client_id

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


def read_log(
    reader: Client,
    stream: str,
    from_seq: int = 1,
    *,
    author: bytes | None = None,
    left_out: LeftOut = _warn,
) -> Iterator[Recorded]:
    """Every entry of a log in order, each verified and opened.

    A message that cannot be opened or is no entry is given to ``left_out``, unless it was written
    by ``author`` or another client that writes entries here: then it is AuditUnread.
    """
    foreign = Foreign(partial(_unread, stream), author)
    for pair in reader.read(stream, from_seq=from_seq):
        seq, client_id = pair.receipt.stream_seq, pair.msg.client_id
        try:
            entry = _entry(reader, pair)
        except (Malformed, Unopenable) as error:
            foreign.unread(seq, client_id, error)
            left_out(stream, seq, error)
            continue
        foreign.read(client_id)
        yield Recorded(seq, pair.receipt.hub_ts, entry)
    foreign.finish()


def _entry(reader: Client, pair: Pair) -> AuditEvent:
    opened = reader.open_payload(pair.msg)
    return parse(read_event(opened.header.schema, opened.body, pair.msg.client_id))


def _unread(stream: str, seq: int, error: VeenError) -> VeenError:
    found = AuditUnread(
        f"{stream}, stream_seq {seq}: {error}; entries must be sealed to the identity that reads "
        "the log ([audit] reader)"
    )
    found.__cause__ = error
    return found
