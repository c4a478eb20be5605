"""An entry of an audit log of a bridge, and what the entries about bundles have in common
(AGB0 4.6).

What the two audit logs of a bridge say, each kind of entry as a type (AGB0 4.6).

``told`` is for people; programs go by ``code``. ``position`` counts the events of a bundle from 0.

The audit log of one side of a bridge: entries are kept until they are in it (AGB0 4.6).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Self, get_type_hints

from veen.client.client import Client
from veen.client.log_head import Pair
from veen.errors import Malformed, Unopenable, VeenError
from veen.events import RECORD_SCHEMA, RecordEvent, read_event
from veen.foreign import Foreign
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """``operator`` is who ran the command, as they call themselves."""

    KIND: ClassVar[str]
    operator: str

    def document(self) -> dict[str, Any]:
        result = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in result.items()
        }

    @classmethod
    def read(cls, document: object) -> Self:
        """An entry of this kind, or Malformed: with its fields, and no others.

        What has a default may be left out: entries of earlier versions do not have it.
        """
        if type(document) is dict and "told" in document:  # the name of ``detail`` before 0.1
            document = {"detail" if name == "told" else name: document[name] for name in document}
        hints = get_type_hints(cls)
        known = {field.name: field.default is MISSING for field in fields(cls)}
        needed = {name for name, is_needed in known.items() if is_needed}
        if type(document) is not dict or not needed <= set(document) <= set(known):
            raise Malformed(f"an entry {cls.KIND} with other fields than it has")
        return cls(**{name: _value(cls, name, document[name], hints[name]) for name in document})

    def subject_id(self) -> str:
        """What an entry is about: a bundle where there is one."""
        bundle_id = getattr(self, "bundle_id", None)
        return f"bundle/{bundle_id.hex()}" if bundle_id else "bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBundle(AuditEvent):
    """``sha256`` is that of the bundle's bytes."""

    bundle_id: bytes
    sha256: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(AuditEvent):
    """A failure can come before anything is known but the bytes."""

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
    """With ``is_claimed`` bundle, hub, stream and range are what the ledger of the carrier says,
    which a trusted exporter has signed; the bundle itself did not get so far.
    """

    is_claimed: bool = False


def _value(kind: type[AuditEvent], name: str, value: Any, hint: Any) -> Any:
    allowed = getattr(hint, "__args__", (hint,))
    if value is None and type(None) in allowed:
        return None
    expected = allowed[0]
    if expected is bytes and type(value) is str:
        try:
            result = bytes.fromhex(value)
        except ValueError:
            result = b""
        if len(result) == 32 and result.hex() == value:
            return result
    elif type(value) is expected and (expected is not int or value >= 0):
        return value
    raise Malformed(f"an entry {kind.KIND} whose {name} is {value!r}")


HELD: Final = "held"
REJECTED: Final = "rejected"
REFUSED: Final = "refused"
"""What was decided about a bundle that is blocked: it lies here until it may go in; people have
said no; the scan has. Of the last two it is in quarantine."""
EVENTS: Final = "events"
CHECKPOINTS: Final = "checkpoints"
"""What two histories show in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportBegin(AuditEvent):
    """Entry ``n`` of the ledger of ``bridge_id``, before any byte of it is on a medium.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSuccess(OfBundle):
    """A bundle is on a medium, whole; ``root`` is that of the stream at ``to_seq``.

    The same bundle may be carried again on another medium, under the same ``n``.
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
    """A carrier with a checkpoint alone, for a period in which nothing was exported."""

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
    """``target_from`` to ``target_to`` is where the imported events stand, those that are not
    ``duplicates``; both 0 where all are. ``accepted_gap`` is the reason that was given for
    importing behind a gap.
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
    """A bundle that was presented again. ``held_as`` is the state in which it has been here
    before; without one, every event of it is in its import stream.
    """

    KIND: ClassVar[str] = "import.duplicate"
    held_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportWaiting(OfBundle):
    """Events ``gap_from`` to ``gap_to`` are not here yet."""

    KIND: ClassVar[str] = "import.waiting"
    gap_from: int
    gap_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportQuarantined(FailedImport):
    KIND: ClassVar[str] = "import.quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportExcluded(AuditEvent):
    """One event that a rule keeps out; a placeholder with its receipt stands in its place."""

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
    """``by`` is ``scan``, ``approvals``, ``operator`` or ``frozen``; ``decision`` is HELD,
    REJECTED or REFUSED. An entry of an earlier version does not tell the decision.
    """

    KIND: ClassVar[str] = "import.blocked"
    by: str
    detail: str
    decision: str = HELD

    @property
    def is_excluded(self) -> bool:
        """Whether it went to quarantine, and not to where bundles wait."""
        return self.decision != HELD or self.by == "scan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportHeartbeat(AuditEvent):
    """A carrier with a checkpoint alone came; ``n`` is its number in the exporter's ledger."""

    KIND: ClassVar[str] = "import.heartbeat"
    n: int
    source_hub_id: bytes
    checkpoint_id: bytes
    checkpoint_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatDuplicate(ImportHeartbeat):
    """The same heartbeat once more."""

    KIND: ClassVar[str] = "import.heartbeat.duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivocation(AuditEvent):
    """The source hub signed two histories of a stream; it is frozen here from now on.

    ``held`` is the leaf of event ``held_seq`` as it is held, ``other`` that of ``other_seq`` in
    the bundle. They are one event, or two that follow each other and of which no log has both;
    an entry of an earlier version does not tell which. ``of`` CHECKPOINTS they are the ids of two
    recorder checkpoints; the one that is held came with another carrier, and a heartbeat, which
    has no bundle, can bring the other.
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
    """An operator lets a frozen stream go on with the history that is held; ``seq`` is where the
    other one parted from it. The evidence stays where it is. With ``is_forgotten`` the checkpoint
    of its hub that was held counts no more, and the next one does.
    """

    KIND: ClassVar[str] = "stream.thawed"
    source_hub_id: bytes
    stream: str
    seq: int
    reason: str
    is_forgotten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRefused(AuditEvent):
    """An approval of a bundle was claimed and does not hold: nobody answered, or a task's state
    was set by hand. ``told`` says which, and in which run; the bundle was not let in by it.
    """

    KIND: ClassVar[str] = "import.approval_refused"
    bundle_id: bytes
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReleased(AuditEvent):
    """An operator took a carrier out of quarantine, where it was for ``code``; it was verified
    anew, and the next import decides about it as about one that has just come.
    """

    KIND: ClassVar[str] = "import.released"
    bundle_id: bytes | None
    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustChanged(AuditEvent):
    """Whom this zone believes was changed by ``operator`` at ``changed_at``, in seconds, as
    changes.txt of its trust directory says. Without a time nobody has entered it there, and
    ``operator`` ran the import that found it.

    ``believed`` is all that the directory then held, a line each; the last of several has it.
    """

    KIND: ClassVar[str] = "trust.changed"
    change: str
    changed_at: int | None = None
    believed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCheckpoint(AuditEvent):
    """A recorder checkpoint of this zone's hub covers ``bundles`` that were imported before it;
    ``anchor`` is the name of the anchor beside it, where it has one by now.
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
    """A reconciliation was made; ``report`` is the digest that ``signer`` has signed."""

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
    """The audit entry that a recorder event is, or Malformed."""
    kind = _KINDS.get(event.event_type)
    if kind is None:
        raise Malformed(f"{event.event_type!r} is not an entry of a bridge's audit log")
    return kind.read(event.value())


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


class RecordedEntry(NamedTuple):
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
        self._client.emit(
            self._stream, self.body(event), schema=RECORD_SCHEMA, recipient=self._recipient
        )

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
            payload=AnyItem(value_to_cbor(event.document())),
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
) -> Iterator[RecordedEntry]:
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
