"""The audit logs of a bridge: each kind of entry as a type, its writer and its reader (AGB0 4.6).

``detail`` is for people; programs go by ``code``. ``position`` counts the events of a bundle from
0. An entry stays in the writer's outbox until the hub has acknowledged it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Self, get_type_hints

from bridge.carrier.format import NO_ENTRY, CarrierLedgerEntry
from veen.client.client import Client
from veen.client.log_head import Pair
from veen.errors import Malformed, Unopenable, VeenError
from veen.events import RECORD_SCHEMA, RecordEvent, read_event
from veen.foreign import Foreign
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor

HELD: Final = "held"
REJECTED: Final = "rejected"
REFUSED: Final = "refused"
"""Decisions about a blocked bundle: it is held until it may be imported; people rejected it; the
scan refused it. In the last two cases it is in quarantine."""
EVENTS: Final = "events"
CHECKPOINTS: Final = "checkpoints"
"""The kinds of evidence of two histories."""
_log = logging.getLogger(__name__)

_EARLIER_NAMES: Final = {"told": "detail", "is_forgotten": "checkpoint_dropped"}
"""Names of fields in entries of earlier releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """An entry of an audit log; ``operator`` is the name given by whoever ran the command."""

    KIND: ClassVar[str]
    operator: str

    def document(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in values.items()
        }

    @classmethod
    def read(cls, document: object) -> Self:
        """Decode an entry of this kind; Malformed if it has other fields.

        Fields with a default may be absent, as in entries of earlier versions.
        """
        if type(document) is dict:
            document = {_EARLIER_NAMES.get(name, name): document[name] for name in document}
        hints = get_type_hints(cls)
        known = {field.name: field.default is MISSING for field in fields(cls)}
        needed = {name for name, is_needed in known.items() if is_needed}
        if type(document) is not dict or not needed <= set(document) <= set(known):
            raise Malformed(f"{cls.KIND}: expected an object of {', '.join(known)}")
        return cls(**{name: _value(cls, name, document[name], hints[name]) for name in document})

    def subject_id(self) -> str:
        """The subject of the entry: its bundle, if it has one."""
        bundle_id = getattr(self, "bundle_id", None)
        return f"bundle/{bundle_id.hex()}" if bundle_id else "bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBundle(AuditEvent):
    """An entry about a bundle; ``sha256`` is that of the bundle's bytes."""

    bundle_id: bytes
    sha256: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(AuditEvent):
    """A failure, possibly before anything but the bytes is known."""

    bundle_id: bytes | None = None
    sha256: bytes | None = None
    source_hub_id: bytes | None = None
    stream: str | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    code: str
    detail: str
    position: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedImport(Failed):
    """A failed import. With ``is_claimed`` bundle, hub, stream and range are taken from the ledger
    of the carrier, which a trusted exporter has signed; the bundle itself was not verified.
    """

    is_claimed: bool = False


def _value(kind: type[AuditEvent], name: str, value: Any, hint: Any) -> Any:
    allowed = getattr(hint, "__args__", (hint,))
    if value is None and type(None) in allowed:
        return None
    expected = allowed[0]
    if expected is bytes and type(value) is str:
        try:
            digest = bytes.fromhex(value)
        except ValueError:
            digest = b""
        if len(digest) == 32 and digest.hex() == value:
            return digest
    elif type(value) is expected and (expected is not int or value >= 0):
        return value
    raise Malformed(f"{kind.KIND}: expected {name} of type {expected.__name__}, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportBegin(AuditEvent):
    """The start of an export: entry ``n`` of the ledger of ``bridge_id``, before any byte of it is
    on a medium.

    A heartbeat has no bundle, no stream and the range 0 to 0. ``checkpoint_at`` is when the
    checkpoint was made, in seconds.
    """

    KIND: ClassVar[str] = "export.begin"
    bridge_id: bytes
    n: int
    bundle_id: bytes | None
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int
    checkpoint_id: bytes
    checkpoint_at: int

    def ledger_entry(self, last: CarrierLedgerEntry | None) -> CarrierLedgerEntry:
        """The entry of the exporter's ledger, which follows ``last``."""
        return CarrierLedgerEntry(
            n=self.n,
            prev=last.entry_hash() if last else NO_ENTRY,
            bundle_id=self.bundle_id,
            hub_id=self.source_hub_id,
            stream=self.stream,
            from_seq=self.from_seq,
            to_seq=self.to_seq,
            checkpoint_id=self.checkpoint_id,
            created_at=self.checkpoint_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSuccess(OfBundle):
    """A bundle was completely written to a medium; ``root`` is that of the stream at ``to_seq``.

    The same bundle may be written to another medium, under the same ``n``.
    """

    KIND: ClassVar[str] = "export.success"
    bridge_id: bytes
    n: int
    checkpoint_id: bytes
    checkpoint_at: int
    root: bytes
    medium: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportHeartbeat(AuditEvent):
    """A carrier with only a checkpoint, for a period in which nothing was exported."""

    KIND: ClassVar[str] = "export.heartbeat"
    bridge_id: bytes
    n: int
    source_hub_id: bytes
    checkpoint_id: bytes
    checkpoint_at: int
    medium: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFailed(Failed):
    KIND: ClassVar[str] = "export.failed"
    medium: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportBegin(OfBundle):
    KIND: ClassVar[str] = "import.begin"
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSuccess(OfBundle):
    """A bundle was imported. ``target_from`` to ``target_to`` is the range of the imported events,
    which are those that are not ``duplicates``; both are 0 if all are. ``accepted_gap`` is the
    reason given for importing after a gap.
    """

    KIND: ClassVar[str] = "import.success"
    target: str
    target_from: int
    target_to: int
    imported: int
    duplicates: int
    excluded: int
    verification_result: str
    resumed_from: int | None = None
    accepted_gap: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFailed(FailedImport):
    KIND: ClassVar[str] = "import.failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportDuplicate(OfBundle):
    """A bundle was presented again. ``held_as`` is the state in which it was held before; without
    it, every event of the bundle is in its import stream.
    """

    KIND: ClassVar[str] = "import.duplicate"
    held_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportWaiting(OfBundle):
    """A bundle waits for events ``gap_from`` to ``gap_to``."""

    KIND: ClassVar[str] = "import.waiting"
    gap_from: int
    gap_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportQuarantined(FailedImport):
    KIND: ClassVar[str] = "import.quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportExcluded(AuditEvent):
    """An event that a rule excludes; a placeholder with its receipt is imported instead."""

    KIND: ClassVar[str] = "import.excluded"
    bundle_id: bytes
    source_hub_id: bytes
    stream: str
    seq: int
    position: int
    leaf_hash: bytes
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportBlocked(OfBundle):
    """A valid bundle is blocked. ``by`` is ``scan``, ``approvals``, ``operator`` or ``frozen``;
    ``decision`` is HELD, REJECTED or REFUSED, and absent in entries of earlier versions.
    """

    KIND: ClassVar[str] = "import.blocked"
    by: str
    detail: str
    decision: str = HELD

    @property
    def is_excluded(self) -> bool:
        """Whether the bundle is in quarantine rather than held."""
        return self.decision != HELD or self.by == "scan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportHeartbeat(AuditEvent):
    """A heartbeat was imported; ``n`` is its number in the exporter's ledger."""

    KIND: ClassVar[str] = "import.heartbeat"
    n: int
    source_hub_id: bytes
    checkpoint_id: bytes
    checkpoint_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatDuplicate(ImportHeartbeat):
    """A heartbeat was presented again."""

    KIND: ClassVar[str] = "import.heartbeat.duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivocation(AuditEvent):
    """The source hub signed two histories of a stream, which is frozen here from now on.

    ``held`` is the leaf of event ``held_seq`` as imported, ``other`` that of ``other_seq`` in the
    bundle. They are the same event, or two adjacent events that no log has both of; entries of
    earlier versions do not say which. ``of`` CHECKPOINTS they are the ids of two recorder
    checkpoints: the held checkpoint came with another carrier, and the other may have come with a
    heartbeat, which has no bundle.
    """

    KIND: ClassVar[str] = "equivocation"
    bundle_id: bytes | None
    source_hub_id: bytes
    stream: str
    seq: int
    held: bytes
    other: bytes
    detail: str
    held_seq: int | None = None
    other_seq: int | None = None
    of: str = EVENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamThawed(AuditEvent):
    """An operator unfroze a stream, which continues the held history; ``seq`` is where the other
    history diverges. The evidence is preserved. With ``checkpoint_dropped`` the held checkpoint of
    its hub is dropped, and the next checkpoint is accepted.
    """

    KIND: ClassVar[str] = "stream.thawed"
    source_hub_id: bytes
    stream: str
    seq: int
    reason: str
    checkpoint_dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRefused(AuditEvent):
    """An approval of a bundle was claimed and does not hold: nobody answered, or the state of a
    task was set by hand. ``detail`` says which, and in which run; the approval has no effect.
    """

    KIND: ClassVar[str] = "import.approval_refused"
    bundle_id: bytes
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReleased(AuditEvent):
    """An operator released a carrier from quarantine, where it was because of ``code``. It was
    verified again, and the next import decides about it as about a new carrier.
    """

    KIND: ClassVar[str] = "import.released"
    bundle_id: bytes | None
    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustChanged(AuditEvent):
    """The trust store of this zone was changed by ``operator`` at ``changed_at``, in seconds,
    according to its changes.txt. Without a time the change was not entered there, and ``operator``
    ran the import that detected it.

    ``believed`` is the content of the trust store after the change, a line for each file; of
    several changes the last has it.
    """

    KIND: ClassVar[str] = "trust.changed"
    change: str
    changed_at: int | None = None
    believed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCheckpoint(AuditEvent):
    """A recorder checkpoint of this zone's hub covers ``bundles`` that were imported before it;
    ``anchor`` is the name of its anchor, if it has been anchored.
    """

    KIND: ClassVar[str] = "import.checkpoint"
    checkpoint_id: bytes
    checkpoint_at: int
    log_root: bytes
    bundles: int
    anchor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRebuilt(AuditEvent):
    KIND: ClassVar[str] = "ledger.rebuilt"
    streams: int
    bundles: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledEntry(AuditEvent):
    """A reconciliation was run; ``report`` is the digest that ``signer`` signed."""

    KIND: ClassVar[str] = "bridge.reconciled"
    report: bytes
    signer: bytes
    whole: bool
    closed_before: int
    imported: int
    excluded: int
    partial: int
    waiting: int
    quarantined: int
    missing: int


_KINDS: Final[dict[str, type[AuditEvent]]] = {
    item.KIND: item
    for item in (
        ExportBegin, ExportSuccess, ExportHeartbeat, ExportFailed, ImportBegin, ImportSuccess,
        ImportFailed, ImportDuplicate, ImportWaiting, ImportQuarantined, ImportExcluded,
        ImportBlocked, ImportHeartbeat, HeartbeatDuplicate, ImportCheckpoint, Equivocation,
        StreamThawed, TrustChanged, LedgerRebuilt, ReconciledEntry, ApprovalRefused, BundleReleased,
    )
}  # fmt: skip


def parse(event: RecordEvent) -> AuditEvent:
    """The audit entry that a recorder event contains, or Malformed."""
    kind = _KINDS.get(event.event_type)
    if kind is None:
        raise Malformed(f"expected an event type of a bridge's audit log, got {event.event_type!r}")
    return kind.read(event.value())


Clock = Callable[[], int]
"""Milliseconds since 1970."""


LeftOut = Callable[[str, int, VeenError], None]
"""Called for a message of a log that is skipped, with the stream, its stream_seq and the reason."""


def _warn(stream: str, seq: int, error: VeenError) -> None:
    _log.warning(
        "%s, stream_seq %d: not an entry of the audit log, skipped: %s", stream, seq, error
    )


class AuditPending(VeenError):
    """An entry is on disk and not in the log yet, so that what it is about is not done."""


class AuditUnread(VeenError):
    """An entry of the log that this identity cannot read."""


class RecordedEntry(NamedTuple):
    """An entry with its sequence number and hub time."""

    seq: int
    hub_ts: int
    event: AuditEvent


class AuditWriter:
    """Writes an audit log as the client's identity, which may do nothing else.

    ``recipient`` is the key of its reader.
    """

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
        """Send entries that earlier runs left in the outbox, or raise AuditPending."""
        if self._client.pending():
            self._flush()

    def enqueue(self, event: AuditEvent) -> None:
        """Put an entry on disk; ``settle`` of this run or a later one sends it."""
        self._client.emit(
            self._stream, self.body(event), schema=RECORD_SCHEMA, recipient=self._recipient
        )

    def record(self, event: AuditEvent) -> None:
        """Write an entry, which is in the log on return, or in the outbox if AuditPending is
        raised.
        """
        self.enqueue(event)
        self._flush()

    def body(self, event: AuditEvent) -> bytes:
        return RecordEvent(
            subject_id=event.subject_id(),
            principal_id=self._client.session.identity.client_id,
            event_type=event.KIND,
            event_time=self._clock(),
            origin=self._origin,
            payload=AnyItem(value_to_cbor(event.document())),
        ).encode()

    def _flush(self) -> None:
        try:
            self._client.flush()
        except VeenError as error:
            raise AuditPending(
                f"{self._client.pending()} entries for {self._stream} wait on disk: {error}; "
                "run the same command again when the hub accepts them"
            ) from error


def read_log(
    reader: Client,
    stream: str,
    from_seq: int = 1,
    *,
    author: bytes | None = None,
    left_out: LeftOut = _warn,
) -> Iterator[RecordedEntry]:
    """Every entry of a log in order, each verified and opened.

    A message that cannot be opened or is no entry is passed to ``left_out``, unless it was written
    by ``author`` or another client that writes entries here: then AuditUnread is raised.
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
        yield RecordedEntry(seq, pair.receipt.hub_ts, entry)
    foreign.finish()


def _entry(reader: Client, pair: Pair) -> AuditEvent:
    opened = reader.open_payload(pair.msg)
    return parse(read_event(opened.header.schema, opened.body, pair.msg.client_id))


def _unread(stream: str, seq: int, error: VeenError) -> VeenError:
    unread = AuditUnread(
        f"{stream}, stream_seq {seq}: {error}; entries must be sealed to the identity that reads "
        "the log ([audit] reader)"
    )
    unread.__cause__ = error
    return unread
