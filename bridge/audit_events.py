"""What the two audit logs of a bridge say, each kind of entry as a type (AGB0 4.6).

``told`` is for people; programs go by ``code``. ``position`` counts the events of a bundle from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, get_type_hints

from veen.errors import Malformed
from veen.record_event import RecordEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """``operator`` is who ran the command, as they call themselves."""

    KIND: ClassVar[str]
    operator: str

    def document(self) -> dict[str, Any]:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in found.items()
        }

    def subject_id(self) -> str:
        """What an entry is about: a bundle where there is one."""
        bundle_id = getattr(self, "bundle_id", None)
        return f"bundle/{bundle_id.hex()}" if bundle_id else "bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bundle(AuditEvent):
    """``sha256`` is that of the bundle's bytes."""

    bundle_id: bytes
    sha256: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed(AuditEvent):
    """A failure can come before anything is known but the bytes."""

    bundle_id: bytes | None = None
    sha256: bytes | None = None
    source_hub_id: bytes | None = None
    stream: str | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    code: str
    told: str
    position: int | None = None
    offset: int | None = None


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
class ExportSuccess(_Bundle):
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
class ExportFailed(_Failed):
    KIND: ClassVar[str] = "export.failed"
    medium: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportBegin(_Bundle):
    KIND: ClassVar[str] = "import.begin"
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSuccess(_Bundle):
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
class ImportFailed(_Failed):
    KIND: ClassVar[str] = "import.failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportDuplicate(_Bundle):
    KIND: ClassVar[str] = "import.duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportWaiting(_Bundle):
    """Events ``gap_from`` to ``gap_to`` are not here yet."""

    KIND: ClassVar[str] = "import.waiting"
    gap_from: int
    gap_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportQuarantined(_Failed):
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
class ImportBlocked(_Bundle):
    """``by`` is ``scan``, ``approvals`` or ``operator``."""

    KIND: ClassVar[str] = "import.blocked"
    by: str
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportHeartbeat(AuditEvent):
    """A carrier with a checkpoint alone came; ``n`` is its number in the exporter's ledger."""

    KIND: ClassVar[str] = "import.heartbeat"
    n: int
    source_hub_id: bytes
    checkpoint_id: bytes
    checkpoint_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivocation(AuditEvent):
    """The source hub signed two histories of a stream; it is frozen here from now on."""

    KIND: ClassVar[str] = "equivocation"
    bundle_id: bytes
    source_hub_id: bytes
    stream: str
    seq: int
    held: bytes
    other: bytes
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamThawed(AuditEvent):
    """An operator lets a frozen stream go on with the history that is held; ``seq`` is where the
    other one parted from it. The evidence stays where it is.
    """

    KIND: ClassVar[str] = "stream.thawed"
    source_hub_id: bytes
    stream: str
    seq: int
    reason: str


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
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled(AuditEvent):
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
    one.KIND: one
    for one in (
        ExportBegin, ExportSuccess, ExportHeartbeat, ExportFailed, ImportBegin, ImportSuccess,
        ImportFailed, ImportDuplicate, ImportWaiting, ImportQuarantined, ImportExcluded,
        ImportBlocked, ImportHeartbeat, ImportCheckpoint, Equivocation, StreamThawed,
        LedgerRebuilt, Reconciled,
    )
}  # fmt: skip


def parse(event: RecordEvent) -> AuditEvent:
    """The audit entry that a recorder event is, or Malformed."""
    kind = _KINDS.get(event.event_type)
    if kind is None:
        raise Malformed(f"{event.event_type!r} is not an entry of a bridge's audit log")
    document = event.value()
    hints = _hints(kind)
    if type(document) is not dict or set(document) != set(hints):
        raise Malformed(f"an entry {kind.KIND} with other fields than it has")
    taken = {name: _value(kind.KIND, name, document[name], hint) for name, hint in hints.items()}
    return kind(**taken)


def _hints(kind: type[AuditEvent]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)}


def _value(kind: str, name: str, value: Any, hint: Any) -> Any:
    allowed = getattr(hint, "__args__", (hint,))
    if value is None and type(None) in allowed:
        return None
    wanted = allowed[0]
    if wanted is bytes and type(value) is str:
        try:
            found = bytes.fromhex(value)
        except ValueError:
            found = b""
        if len(found) == 32 and found.hex() == value:
            return found
    elif type(value) is wanted and (wanted is not int or value >= 0):
        return value
    raise Malformed(f"an entry {kind} whose {name} is {value!r}")
