"""Completion of an outcome, in one durable order (AGB0 4.6).

First the ledger: the new state and the pending actions, in one transaction. Then the audit entries,
and only then files to where they belong. Each action is idempotent, so that a completion that was
interrupted is repeated by the next run. Steps decide and return a Completion; nothing of it is done
before ``finish``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

from bridge.audit_log import AuditEvent
from bridge.errors import CarrierRefused
from bridge.importer.context import ImportContext
from bridge.importer.ledger import BundleRow, LedgerChange, PendingActions
from bridge.importer.outcome import ClaimedBundle, ImportOutcome, ImportState, IncomingCarrier
from veen.system import durable


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Everything that completes an outcome. Paths are inside the import directory.

    ``token`` makes its audit entries idempotent; ``finish`` draws one if it is not given.
    """

    events: tuple[AuditEvent, ...]
    change: LedgerChange = field(default_factory=LedgerChange)
    writes: tuple[tuple[str, str], ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    removals: tuple[str, ...] = ()
    token: bytes | None = None


class ImportDecision(NamedTuple):
    """The outcome of a carrier, and its completion; None if nothing about it is new.

    ``leftovers`` are copies that nothing refers to, of a carrier about which nothing is new.
    """

    outcome: ImportOutcome
    completion: Completion | None = None
    leftovers: tuple[str, ...] = ()


def finish(context: ImportContext, completion: Completion) -> None:
    """Store and do all of a completion, or raise AuditPending with only its entry in the outbox."""
    pending = PendingActions(
        token=completion.token or context.random(16),
        bodies=tuple(context.audit_outbox.body(event) for event in completion.events),
        writes=completion.writes,
        moves=completion.moves,
        removals=completion.removals,
    )
    context.ledger.conclude(completion.change, pending)
    _apply(context, pending)


def finish_decision(context: ImportContext, decision: ImportDecision) -> ImportOutcome:
    """Finish what was decided about a carrier."""
    if decision.completion is not None:
        finish(context, decision.completion)
    for name in decision.leftovers:
        context.import_dir.remove(name)
    return decision.outcome


def finish_interrupted(context: ImportContext) -> None:
    """Complete the outcomes that earlier runs have stored, or raise AuditPending."""
    context.audit_outbox.flush()
    for pending in context.ledger.pending():
        _apply(context, pending)


def _apply(context: ImportContext, pending: PendingActions) -> None:
    context.audit_outbox.write_once(pending.token, pending.bodies)
    for path, text in pending.writes:
        target = context.import_dir.root / path
        context.import_dir.make_folder(target.parent)
        durable.write(target, text.encode())
    for source, target_name in pending.moves:
        context.import_dir.move(source, target_name)
    for name in pending.removals:
        context.import_dir.remove(name)
    context.ledger.applied(pending)


class BundleFields(TypedDict):
    """The fields of an audit entry about a verified bundle."""

    operator: str
    bundle_id: bytes
    sha256: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int
    count: int


class FailedFields(TypedDict):
    """The fields of an audit entry about a failure, as far as they are known."""

    operator: str
    bundle_id: bytes | None
    sha256: bytes
    source_hub_id: bytes | None
    stream: str | None
    from_seq: int | None
    to_seq: int | None
    position: int | None
    offset: int | None
    is_claimed: bool


def bundle_fields(row: BundleRow, operator: str) -> BundleFields:
    return {
        "operator": operator,
        "bundle_id": row.bundle_id,
        "sha256": row.sha256,
        "source_hub_id": row.source_hub_id,
        "stream": row.stream,
        "from_seq": row.from_seq,
        "to_seq": row.to_seq,
        "count": row.count,
    }


def failed_fields(
    operator: str, sha256: bytes, of: BundleRow | ClaimedBundle | None, error: CarrierRefused
) -> FailedFields:
    """The fields of a failure; ``of`` is the verified or the claimed bundle, if it is known."""
    named = of if isinstance(of, ClaimedBundle) else None
    if isinstance(of, BundleRow):
        named = ClaimedBundle(of.bundle_id, of.source_hub_id, of.stream, of.from_seq, of.to_seq)
        sha256 = of.sha256 or sha256
    return {
        "operator": operator,
        "bundle_id": named.bundle_id if named else None,
        "sha256": sha256,
        "source_hub_id": named.source_hub_id if named else None,
        "stream": named.stream if named else None,
        "from_seq": named.from_seq if named else None,
        "to_seq": named.to_seq if named else None,
        "position": named.position(error.seq) if named and error.seq is not None else None,
        "offset": error.offset,
        "is_claimed": isinstance(of, ClaimedBundle),
    }


def outcome_of(
    state: ImportState,
    carrier: IncomingCarrier,
    row: BundleRow | None,
    *,
    code: str = "",
    detail: str = "",
    duplicates: int = 0,
    place: str = "",
) -> ImportOutcome:
    return ImportOutcome(
        state=state,
        name=carrier.name,
        bundle_id=row.bundle_id if row else None,
        stream=row.stream if row else "",
        from_seq=row.from_seq if row else 0,
        to_seq=row.to_seq if row else 0,
        checkpoint_at=row.checkpoint_at if row else None,
        duplicates=duplicates,
        code=code,
        detail=detail,
        place=place,
    )
