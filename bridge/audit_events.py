"""What the two audit logs of a bridge say, each kind of entry as a type (AGB0 4.6).

``told`` is for people; programs go by ``code``. ``position`` counts the events of a bundle from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from bridge.audit_entry import AuditEvent as AuditEvent  # noqa: PLC0414 - the type of all of them
from bridge.audit_entry import Failed, FailedImport, OfBundle
from veen.errors import Malformed
from veen.record_event import RecordEvent

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
    told: str
    decision: str = HELD

    @property
    def is_kept_out(self) -> bool:
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
    told: str
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
    told: str


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
        ImportBlocked, ImportHeartbeat, HeartbeatDuplicate, ImportCheckpoint, Equivocation,
        StreamThawed, TrustChanged, LedgerRebuilt, Reconciled, ApprovalRefused, BundleReleased,
    )
}  # fmt: skip


def parse(event: RecordEvent) -> AuditEvent:
    """The audit entry that a recorder event is, or Malformed."""
    kind = _KINDS.get(event.event_type)
    if kind is None:
        raise Malformed(f"{event.event_type!r} is not an entry of a bridge's audit log")
    return kind.read(event.value())
