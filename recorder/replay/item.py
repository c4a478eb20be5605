"""One message of a replay: a recorder event with its place, or what else it is and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from recorder.replay.source import Source
from veen import seal
from veen.client.pair import Pair
from veen.errors import Unopenable
from veen.import_event import SCHEMA as IMPORTED
from veen.import_event import (
    ImportedEvent,
    ImportFault,
    NotImported,
    is_import,
    read_imported,
)
from veen.msg import Msg
from veen.profile import DEFAULT_PROFILE
from veen.receipt import Receipt
from veen.record_event import SCHEMA, EventFault, NotAnEvent, RecordEvent, read_event

TOLD_FAULTS = (EventFault.UNOPENED, EventFault.OTHER_SCHEMA)
"""What only the reader's private key can show: the schema stands in the sealed header."""


class ItemKind(Enum):
    EVENT = "event"
    OTHER = "other"
    RECEIPT = "receipt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """``fault`` says why a message is no event; without it and ``event`` nobody tried to open it.

    ``body_key`` opens the body of this one message for whoever gets it. Of a message in an import
    stream ``event`` is the origin's, and ``imported`` says where that stands at its origin.
    """

    stream: str
    msg: Msg
    receipt: Receipt
    proven: bool
    event: RecordEvent | None = None
    fault: NotAnEvent | None = None
    body_key: bytes | None = None
    imported: ImportedEvent | None = None

    @property
    def kind(self) -> ItemKind:
        if self.event is not None:
            return ItemKind.EVENT
        return ItemKind.RECEIPT if self.fault is None else ItemKind.OTHER

    @property
    def seq(self) -> int:
        return self.receipt.stream_seq

    @property
    def receipt_id(self) -> str:
        return f"rcpt-{self.receipt.leaf_hash.hex()}"

    @property
    def order(self) -> tuple[int, str, int]:
        """Where it stands among those of all streams (I1)."""
        return self.receipt.hub_ts, self.stream, self.seq


def sealed_item(stream: str, pair: Pair, *, proven: bool) -> Item:
    """A message that is left closed."""
    return Item(stream=stream, msg=pair.msg, receipt=pair.receipt, proven=proven)


def opened_item(source: Source, stream: str, pair: Pair, *, proven: bool) -> Item:
    """A message as what it turns out to be; there is none that this leaves out."""
    try:
        opened = source.open_pair(pair)
    except Unopenable as error:
        fault = NotAnEvent(EventFault.UNOPENED, str(error))
        return _item(stream, pair, proven=proven, fault=fault)
    schema = opened.header.schema
    return _read(stream, pair, schema, opened.body, opened.body_key, proven=proven)


def derived_item(
    stream: str, pair: Pair, body_key: bytes, told: NotAnEvent | None, *, proven: bool
) -> Item:
    """The item that a message is, for one who has its body key and not the reader's private key."""
    # A key for the body of an imported event says that it was opened: then what it lacks is the
    # key to the origin's message, which its body shows by itself.
    is_shown = is_import(stream) and told is not None and told.fault is EventFault.UNOPENED
    if told is not None and told.fault in TOLD_FAULTS and not is_shown:
        return _item(stream, pair, proven=proven, fault=told, body_key=body_key)
    body = seal.open_body(body_key=body_key, msg=pair.msg, profile=DEFAULT_PROFILE)
    schema = IMPORTED if is_import(stream) else SCHEMA
    return _read(stream, pair, schema, body, body_key, proven=proven)


def _read(
    stream: str, pair: Pair, schema: bytes, body: bytes, body_key: bytes, *, proven: bool
) -> Item:
    imported = None
    try:
        if is_import(stream):
            imported = _imported(schema, body, pair.msg.client_id)
            event = imported.origin_event()
        else:
            event = read_event(schema, body, pair.msg.client_id)
    except NotAnEvent as fault:
        return _item(stream, pair, proven=proven, fault=fault, body_key=body_key, imported=imported)
    return _item(stream, pair, proven=proven, event=event, body_key=body_key, imported=imported)


def _imported(schema: bytes, body: bytes, client_id: bytes) -> ImportedEvent:
    """The imported event, or the fault for which it is none in the words of recorder events."""
    try:
        return read_imported(schema, body, client_id)
    except NotImported as error:
        if error.fault is ImportFault.OTHER_SCHEMA:
            raise NotAnEvent(EventFault.OTHER_SCHEMA, schema.hex()) from error
        raise NotAnEvent(EventFault.MALFORMED, str(error)) from error


def _item(
    stream: str,
    pair: Pair,
    *,
    proven: bool,
    event: RecordEvent | None = None,
    fault: NotAnEvent | None = None,
    body_key: bytes | None = None,
    imported: ImportedEvent | None = None,
) -> Item:
    return Item(
        stream=stream,
        msg=pair.msg,
        receipt=pair.receipt,
        proven=proven,
        event=event,
        fault=fault,
        body_key=body_key,
        imported=imported,
    )
