"""The bodies of recorder events and of imported events (SDR0 3.2.1, AGB0 4.5).

A recorder event has six of its eight fields here; hub_commit_seq and hub_commit_time are in the
receipt. An imported event carries what its origin signed byte for byte, so a reader of an import
stream can verify it without the bundle and without the origin's hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.msg import Msg
from veen.payload import open_body
from veen.receipt import Receipt
from veen.wire.body import AnyItem, EventBody
from veen.wire.canonical_json import cbor_to_json
from veen.wire.schema import Bytes32

RECORD_SCHEMA: Final = h(b"record.event.v1")
MAX_NAME_BYTES: Final = 512
MAX_TIME_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that a timestamp can name."""
IMPORT_SCHEMA: Final = h(b"import.event.v1")
IMPORT_NAMESPACE: Final = "import/"
"""The prefix of the name of every import stream (AGB0 4.2)."""
T = TypeVar("T")


class EventFault(Enum):
    """The reason why a message is not a recorder event; the first that applies counts."""

    UNOPENED = "the reader's keys do not open it"
    OTHER_SCHEMA = "its schema is not record.event.v1"
    MALFORMED = "its body is not a record.event.v1"
    FIELD = "a field is empty, too long or out of range"
    PAYLOAD = "its payload is not JSON in CBOR"
    PRINCIPAL = "its principal_id is not the client that signed it"


class NotAnEvent(Malformed):
    """A message in a recorder stream that is not a recorder event."""

    def __init__(self, fault: EventFault, detail: str = "") -> None:
        super().__init__(f"{fault.value}: {detail}" if detail else fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent(EventBody):
    """``event_time`` is in milliseconds since 1970; ``payload`` is JSON in deterministic CBOR."""

    subject_id: str
    principal_id: Bytes32
    event_type: str
    event_time: int
    origin: str
    payload: AnyItem

    def value(self) -> Any:
        """The payload as a JSON value."""
        return cbor_to_json(self.payload)


def read_event(schema: bytes, body: bytes, client_id: bytes) -> RecordEvent:
    """The event in a client's message; NotAnEvent is the only error.

    A message that no key opened has the empty schema.
    """
    if not schema:
        raise NotAnEvent(EventFault.UNOPENED)
    if schema != RECORD_SCHEMA:
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
    """Raise NotAnEvent for fields that cannot be searched, or a payload that is not JSON."""
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


def is_import(stream: str) -> bool:
    return stream.startswith(IMPORT_NAMESPACE)


class ImportFault(Enum):
    """The reason why a message is not an imported event; the first that applies counts."""

    UNOPENED = "the reader's keys do not open it"
    OTHER_SCHEMA = "its schema is not import.event.v1"
    MALFORMED = "its body is not an import.event.v1"
    ORIGIN = "what it holds of its origin is no message or no receipt"
    PLACE = "its receipt is not for its message or its stream"
    BRIDGE = "its bridge_id is not the client that signed it"


class NotImported(Malformed):
    """A message in an import stream that is not an imported event."""

    def __init__(self, fault: ImportFault, detail: str = "") -> None:
        super().__init__(f"{fault.value}: {detail}" if detail else fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEvent(EventBody):
    """An event of a bundle, or the placeholder of an event that the zone's policy excludes.

    ``position`` counts, from 0, the ``count`` events that an import wrote from its bundle: all but
    those that an earlier bundle had brought. ``import_time`` is in seconds. A placeholder has
    ``excluded``, the reason, and no ``origin_msg``: the receipt has the leaf. ``metadata`` is what
    the exporter disclosed of an event whose body it did not disclose, byte for byte.
    """

    source_hub_id: Bytes32
    origin_stream: str
    origin_msg: bytes | None = None
    origin_receipt: bytes
    body_key: Bytes32 | None = None
    metadata: AnyItem | None = None
    bundle_id: Bytes32
    position: int
    count: int
    import_time: int
    bridge_id: Bytes32
    excluded: str | None = None

    def rule(self) -> None:
        if not self.position < self.count:
            raise Malformed(f"expected a position below {self.count}, got {self.position}")
        if (self.origin_msg is None) != (self.excluded is not None):
            raise Malformed(
                "expected the message of the event, or why it is withheld, got both or neither"
            )
        if self.excluded is not None and (self.body_key or self.metadata) is not None:
            raise Malformed("expected no disclosed content of a withheld event, got some")
        for name in (self.origin_stream, self.excluded):
            if name is not None and not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
                raise Malformed(
                    f"expected a name of 1 to {MAX_NAME_BYTES} bytes, got {len(name.encode())}"
                )

    @property
    def is_last(self) -> bool:
        """Whether this event completes the import of its bundle."""
        return self.position == self.count - 1

    def msg(self) -> Msg | None:
        return None if self.origin_msg is None else Msg.decode(self.origin_msg)

    def receipt(self) -> Receipt:
        return Receipt.decode(self.origin_receipt)

    def verify(self, hub: HubIdentity) -> None:
        """Raise Untrusted unless the origin's client and hub signed it; ``hub`` is pinned."""
        if hub.hub_id != self.source_hub_id:
            raise Untrusted(f"the event is from hub {self.source_hub_id.hex()}")
        hub.verify_receipt(self.receipt())
        msg = self.msg()
        if msg is not None and not msg.signature_is_valid():
            raise Untrusted("the origin's message is not signed by its client")

    def origin_event(self) -> RecordEvent:
        """The recorder event in the origin's message, or NotAnEvent."""
        msg = self.msg()
        if msg is None or self.body_key is None:
            raise NotAnEvent(EventFault.UNOPENED, self.excluded or "")
        try:
            body = open_body(body_key=self.body_key, msg=msg, profile=DEFAULT_PROFILE)
        except (Malformed, Untrusted) as error:
            raise NotAnEvent(EventFault.UNOPENED, str(error)) from error
        return read_event(RECORD_SCHEMA, body, msg.client_id)


def read_imported(schema: bytes, body: bytes, client_id: bytes) -> ImportedEvent:
    """The imported event in a bridge's message; NotImported is the only error.

    A message that no key opened has the empty schema. Signatures are left to ``verify``.
    """
    if not schema:
        raise NotImported(ImportFault.UNOPENED)
    if schema != IMPORT_SCHEMA:
        raise NotImported(ImportFault.OTHER_SCHEMA, schema.hex())
    try:
        event = ImportedEvent.decode(body)
    except Malformed as error:
        raise NotImported(ImportFault.MALFORMED, str(error)) from error
    try:
        msg, receipt = event.msg(), event.receipt()
    except Malformed as error:
        raise NotImported(ImportFault.ORIGIN, str(error)) from error
    _verify_place(event, msg, receipt)
    if event.bridge_id != client_id:
        raise NotImported(ImportFault.BRIDGE, f"{event.bridge_id.hex()}, {client_id.hex()}")
    return event


def _verify_place(event: ImportedEvent, msg: Msg | None, receipt: Receipt) -> None:
    label = derive_label(routing_key(event.source_hub_id), stream_id(event.origin_stream), 0)
    if receipt.label != label:
        raise NotImported(ImportFault.PLACE, "of another stream or hub")
    if msg is None:
        return
    if not msg.ct_hash_matches() or msg.label != label or msg.leaf_hash() != receipt.leaf_hash:
        raise NotImported(ImportFault.PLACE, "of another message")


class Visibility(Generic[T]):
    """Holds the events of a bundle back until the last has arrived in the same stream.

    So a bundle becomes visible atomically (AGB0 4.5).
    """

    def __init__(self) -> None:
        self._open: dict[bytes, list[T]] = {}

    def add(self, event: ImportedEvent, item: T) -> list[T]:
        """The items that become visible with this event, in the order of the stream."""
        held = self._open.setdefault(event.bundle_id, [])
        held.append(item)
        return self._open.pop(event.bundle_id) if event.is_last else []

    def held_back(self) -> list[T]:
        """The items that are not visible yet, by bundle in the order of the stream."""
        return [item for held in self._open.values() for item in held]


def visible(events: Iterable[ImportedEvent]) -> Iterator[ImportedEvent]:
    """The visible events of an import stream that is read from its beginning."""
    seen: Visibility[ImportedEvent] = Visibility()
    for event in events:
        yield from seen.add(event, event)
