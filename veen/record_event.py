"""The recorder event: who did what, when and where, as the body of a message (SDR0 3.2.1).

Six of its eight fields are here. hub_commit_seq and hub_commit_time are the hub's to give, and
stand in the receipt.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from veen import json_body
from veen.digest import h
from veen.errors import Malformed
from veen.overlay.body import AnyItem, Body
from veen.schema import Bytes32

SCHEMA: Final = h(b"record.event.v1")
MAX_NAME_BYTES: Final = 512
MAX_TIME_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that a timestamp can name."""


class EventFault(Enum):
    """Why a message is not a recorder event; the first that holds, in this order."""

    UNOPENED = "the reader's keys do not open it"
    OTHER_SCHEMA = "its schema is not record.event.v1"
    MALFORMED = "its body is not a record.event.v1"
    FIELD = "a field is empty, too long or out of range"
    PAYLOAD = "its payload is not JSON in CBOR"
    PRINCIPAL = "its principal_id is not the client that signed it"


class NotAnEvent(Malformed):
    """A message in a recorder stream that is no recorder event, and why."""

    def __init__(self, fault: EventFault, told: str = "") -> None:
        super().__init__(f"{fault.value}: {told}" if told else fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent(Body):
    """``event_time`` is in milliseconds since 1970; ``payload`` is JSON in deterministic CBOR."""

    subject_id: str
    principal_id: Bytes32
    event_type: str
    event_time: int
    origin: str
    payload: AnyItem

    def value(self) -> Any:
        """The payload as a JSON value."""
        return json_body.decode(self.payload)


def read_event(schema: bytes, body: bytes, client_id: bytes) -> RecordEvent:
    """The event that a client's message is, or NotAnEvent: there is no third way out.

    A message that no key opened has the empty schema.
    """
    if not schema:
        raise NotAnEvent(EventFault.UNOPENED)
    if schema != SCHEMA:
        raise NotAnEvent(EventFault.OTHER_SCHEMA, schema.hex())
    try:
        event = RecordEvent.decode(body)
    except Malformed as error:
        raise NotAnEvent(EventFault.MALFORMED, str(error)) from error
    verify_fields(event)
    if event.principal_id != client_id:
        raise NotAnEvent(EventFault.PRINCIPAL, f"{event.principal_id.hex()}, {client_id.hex()}")
    return event


def verify_fields(event: RecordEvent) -> None:
    """Refuse an event whose fields hold what nobody could look for, or no JSON."""
    for name in ("subject_id", "event_type", "origin"):
        size = len(getattr(event, name).encode())
        if not 1 <= size <= MAX_NAME_BYTES:
            raise NotAnEvent(EventFault.FIELD, f"{name} has {size} bytes")
    if event.event_time > MAX_TIME_MS:
        raise NotAnEvent(EventFault.FIELD, f"event_time {event.event_time} is after the year 9999")
    try:
        event.value()
    except Malformed as error:
        raise NotAnEvent(EventFault.PAYLOAD, str(error)) from error
