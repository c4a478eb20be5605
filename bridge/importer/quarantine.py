"""Decisions about carriers that are refused: quarantined, incomplete, or not read at all.

Each is audited. A refused carrier goes to quarantine with ``reason.json`` beside it. A bag that no
trusted exporter has signed may be anything, and of any size: only its hashes and the reason are
stored, since a stored copy would let any medium fill the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from bridge.audit_log import AuditEvent, Equivocation, ImportFailed, ImportQuarantined
from bridge.carrier.directory import LEADS_ELSEWHERE, BagPath, carrier_name
from bridge.errors import CarrierFault, CarrierRefused, printable
from bridge.importer.checkpoints import Contradiction
from bridge.importer.context import ImportContext
from bridge.importer.equivocation import checkpoint_evidence, two_checkpoints
from bridge.importer.finish import Completion, ImportDecision, failed_fields, outcome_of
from bridge.importer.holding import presented_again
from bridge.importer.ledger import (
    BundleRow,
    ImportPlan,
    LedgerChange,
    LedgerNote,
    SourceStream,
)
from bridge.importer.outcome import ClaimedBundle, ImportOutcome, ImportState, IncomingCarrier
from bridge.importer.reason import REASON, code_of, encode_reason
from bridge.importer.staging import InsufficientSpace, bytes_below, digest_of, fingerprint
from veen.digest import h

MOST_ENTRIES: Final = 10_000
"""Entries in quarantine; anybody can make unsigned bags, and further ones are only audited."""
_LINE: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReason:
    """Why a carrier goes to quarantine, and its audit entry.

    ``row`` is its bundle if that is verified, ``plan`` the plan that is abandoned. ``evidence`` is
    added to the reason; ``fork`` freezes a stream.
    """

    code: str
    detail: str
    event: AuditEvent
    row: BundleRow | None = None
    state: ImportState = ImportState.QUARANTINED
    evidence: Mapping[str, object] = field(default_factory=dict)
    plan: ImportPlan | None = None
    fork: Equivocation | None = None

    @property
    def events(self) -> tuple[AuditEvent, ...]:
        """The audit entries; that of a fork may be the entry of the refusal itself."""
        if self.fork is None or self.fork is self.event:
            return (self.event,)
        return (self.fork, self.event)


def refuse(
    context: ImportContext,
    carrier: IncomingCarrier,
    error: CarrierRefused,
    of: BundleRow | ClaimedBundle | None,
    plan: ImportPlan | None = None,
) -> ImportDecision:
    """Quarantine an invalid carrier; a new carrier that lacks volumes stays in the inbox.

    ``of`` is the verified or the claimed bundle, if it is known.
    """
    if error.fault is CarrierFault.INCOMPLETE and carrier.is_new:
        return _incomplete(context, carrier, error, of)
    code, detail = _code(error), printable(str(error), _LINE)
    fields = failed_fields(context.operator, carrier.sha256, of, error)
    refusal = QuarantineReason(
        code=code,
        detail=detail,
        event=ImportQuarantined(code=code, detail=detail, **fields),
        row=of if isinstance(of, BundleRow) else None,
        plan=plan,
    )
    return quarantine(context, carrier, refusal)


def contradict(
    context: ImportContext,
    carrier: IncomingCarrier,
    row: BundleRow | None,
    contradiction: Contradiction,
) -> ImportDecision:
    """Quarantine a carrier whose checkpoint contradicts the stored checkpoint of its hub."""
    error = CarrierRefused(CarrierFault.FORK, contradiction.detail, seq=contradiction.seq)
    code, detail = _code(error), printable(str(error), _LINE)
    fields = failed_fields(context.operator, carrier.sha256, row, error)
    fork = two_checkpoints(context, row, contradiction)
    is_new = context.ledger.frozen_at(SourceStream(fork.source_hub_id, fork.stream)) is None
    refusal = QuarantineReason(
        code=code,
        detail=detail,
        event=ImportQuarantined(code=code, detail=detail, **fields),
        row=row,
        evidence=checkpoint_evidence(contradiction),
        fork=fork if is_new else None,
    )
    return quarantine(context, carrier, refusal)


def quarantine(
    context: ImportContext, carrier: IncomingCarrier, refusal: QuarantineReason
) -> ImportDecision:
    """Move a carrier to quarantine, with the reason beside it; the same carrier for the same
    reason only once.
    """
    token, row = context.random(16), refusal.row
    name = (row.bundle_id if row else carrier.sha256).hex()
    folder = context.import_dir.quarantine(name)
    if folder.exists():
        is_same = refusal.plan is None and code_of(folder) == refusal.code
        if is_same and refusal.fork is not refusal.event:
            return _refused_again(context, carrier, refusal)
        folder = context.import_dir.quarantine(f"{name}-{token.hex()[:8]}")
    place = context.import_dir.inside(folder)
    stored = _into_quarantine(context, carrier, place)
    reason = encode_reason(
        refusal.code,
        refusal.detail,
        carrier.inbox,
        hashes=stored.hashes,
        evidence=refusal.evidence,
    )
    held = context.import_dir.left_waiting(row.bundle_id) if row and carrier.is_new else ()
    completion = Completion(
        token=token,
        events=refusal.events,
        change=LedgerChange(
            row=replace(row, state=refusal.state.value, detail=refusal.detail) if row else None,
            abandoned=refusal.plan,
            fork=refusal.fork,
        ),
        writes=((f"{place}/{REASON}", reason),),
        moves=stored.moves,
        removals=(*stored.removals, *held),
    )
    return ImportDecision(_outcome(carrier, refusal, refusal.detail, folder), completion)


def not_read(context: ImportContext, name: str, error: CarrierRefused) -> ImportDecision:
    """The outcome of a medium of which nothing was copied: it is unreadable, or no medium."""
    fields = failed_fields(context.operator, h(b""), None, error)
    is_gone = isinstance(error.__cause__, OSError)
    state = ImportState.INCOMPLETE if is_gone else ImportState.REFUSED
    code, detail = _code(error), printable(str(error), _LINE)
    return ImportDecision(
        ImportOutcome(state=state, name=name, code=code, detail=detail),
        Completion(events=(ImportFailed(code=code, detail=detail, **fields),)),
    )


def no_space(context: ImportContext, name: str, error: InsufficientSpace) -> ImportDecision:
    """The outcome of a carrier that was not copied for lack of space."""
    code, detail = error.error_code, printable(str(error), _LINE)
    event = ImportFailed(operator=context.operator, code=code, detail=detail)
    return ImportDecision(
        ImportOutcome(state=ImportState.INCOMPLETE, name=name, code=code, detail=detail),
        Completion(events=(event,)),
    )


def unsigned_on_medium(
    context: ImportContext, bag: BagPath, error: CarrierRefused, partial: Path | None = None
) -> ImportDecision:
    """The outcome of a bag on a medium that no trusted exporter has signed; the medium is not
    changed. ``partial`` is a partial copy of the bag.
    """
    removals = () if partial is None else (context.import_dir.inside(partial),)
    if _may_be_completed(error):
        return _unfinished(context, bag, error, removals)
    return _store_hashes(context, bag, error, removals)


def unsigned_in_inbox(
    context: ImportContext, bag: BagPath, error: CarrierRefused
) -> ImportDecision:
    """The outcome of a bag in the inbox that no trusted exporter has signed; it is removed unless
    it may still be completed.
    """
    if _may_be_completed(error):
        return _unfinished(context, bag, error, ())
    return _store_hashes(context, bag, error, (context.import_dir.inside(bag.path),))


class _Storage(NamedTuple):
    """How a carrier is stored in quarantine; ``hashes`` if nothing else of it is."""

    moves: tuple[tuple[str, str], ...]
    removals: tuple[str, ...]
    hashes: list[str] | None


def _into_quarantine(context: ImportContext, carrier: IncomingCarrier, place: str) -> _Storage:
    """What was received is moved as it came; our copy is removed. Beyond the quota the carrier is
    removed, and the reason has its hashes.
    """
    copy = context.import_dir.inside(carrier.place)
    names = carrier.inbox if carrier.is_new else (copy,)
    size = sum(bytes_below(context.import_dir.root / name) for name in names)
    if context.quarantine_bytes() + size > context.settings.max_quarantine_bytes:
        lines = [line for bag in carrier.bags for line in fingerprint(BagPath.of(bag))]
        return _Storage((), (copy, *carrier.inbox), lines)
    context.count_quarantined(size)
    moves = tuple((name, f"{place}/{number}") for number, name in enumerate(names, 1))
    return _Storage(moves, (copy,) if carrier.is_new else (), None)


def _refused_again(
    context: ImportContext, carrier: IncomingCarrier, refusal: QuarantineReason
) -> ImportDecision:
    """The outcome of a carrier that is already in quarantine for this reason."""
    detail = f"{refusal.detail}; it is in quarantine already"
    if refusal.row is not None:
        return presented_again(
            context, carrier, refusal.row, refusal.state, code=refusal.code, detail=detail
        )
    removals = (context.import_dir.inside(carrier.place), *carrier.inbox)
    folder = context.import_dir.quarantine(carrier.sha256.hex())
    return ImportDecision(
        _outcome(carrier, refusal, detail, folder),
        Completion(events=(refusal.event,), removals=removals),
    )


def _outcome(
    carrier: IncomingCarrier, refusal: QuarantineReason, detail: str, folder: Path
) -> ImportOutcome:
    return outcome_of(
        refusal.state, carrier, refusal.row, code=refusal.code, detail=detail, place=str(folder)
    )


def _incomplete(
    context: ImportContext,
    carrier: IncomingCarrier,
    error: CarrierRefused,
    of: BundleRow | ClaimedBundle | None,
) -> ImportDecision:
    """Leave an incomplete carrier in the inbox, without repeated bags; audited once."""
    code, detail = _code(error), printable(str(error), _LINE)
    place = str(context.import_dir.root / carrier.inbox[0])
    outcome = outcome_of(
        ImportState.INCOMPLETE, carrier, None, code=code, detail=detail, place=place
    )
    removals = (context.import_dir.inside(carrier.place), *carrier.doubled)
    note = LedgerNote(f"incomplete/{carrier.inbox[0]}", carrier.sha256)
    if context.ledger.noted(note.name) == note.value:
        return ImportDecision(outcome, leftovers=removals)
    fields = failed_fields(context.operator, carrier.sha256, of, error)
    event = ImportFailed(code=code, detail=detail, **fields)
    change = LedgerChange(notes=(note,))
    return ImportDecision(outcome, Completion(events=(event,), change=change, removals=removals))


def _unfinished(
    context: ImportContext, bag: BagPath, error: CarrierRefused, removals: tuple[str, ...]
) -> ImportDecision:
    """The outcome of an unsigned bag that is unfinished, which is audited once, or unreadable."""
    name, digest = carrier_name(bag.name), digest_of(fingerprint(bag))
    code, detail = _code(error), printable(str(error), _LINE)
    outcome = ImportOutcome(
        state=ImportState.INCOMPLETE, name=name, code=code, detail=detail, place=str(bag)
    )
    note = LedgerNote(f"unfinished/{name}", digest)
    is_unfinished = error.fault is CarrierFault.INCOMPLETE
    if is_unfinished and context.ledger.noted(note.name) == note.value:
        return ImportDecision(outcome)
    fields = failed_fields(context.operator, digest, None, error)
    event = ImportFailed(code=code, detail=detail, **fields)
    change = LedgerChange(notes=(note,) if is_unfinished else ())
    return ImportDecision(outcome, Completion(events=(event,), change=change, removals=removals))


def _store_hashes(
    context: ImportContext, bag: BagPath, error: CarrierRefused, removals: tuple[str, ...]
) -> ImportDecision:
    """Store the hashes of an unsigned bag, once and within the quota."""
    lines = fingerprint(bag)
    name, digest, code = carrier_name(bag.name), digest_of(lines), _code(error)
    detail, folder = printable(str(error), _LINE), context.import_dir.quarantine(digest.hex())
    fields = failed_fields(context.operator, digest, None, error)
    writes: tuple[tuple[str, str], ...] = ()
    is_new = code_of(folder) != code
    has_space = (
        context.quarantine_entries() < MOST_ENTRIES
        and context.quarantine_bytes() < context.settings.max_quarantine_bytes
    )
    if is_new and has_space:
        reason = encode_reason(code, detail, [name], hashes=lines)
        writes = ((f"{context.import_dir.inside(folder)}/{REASON}", reason),)
        context.count_quarantined(len(reason))
    outcome = ImportOutcome(
        state=ImportState.QUARANTINED,
        name=name,
        code=code,
        detail=f"{detail}; nothing of it was copied, only its hashes are stored",
        place=str(folder) if has_space or not is_new else "",
    )
    event = ImportQuarantined(code=code, detail=detail, **fields)
    return ImportDecision(outcome, Completion(events=(event,), writes=writes, removals=removals))


def _code(error: CarrierRefused) -> str:
    return f"{error.fault.code.value}/{error.fault.detail_enum}"


def _may_be_completed(error: CarrierRefused) -> bool:
    """Whether the bag lacks its signature or cannot be read now; a link is neither."""
    cause = error.__cause__
    is_unreadable = isinstance(cause, OSError) and cause.errno not in LEADS_ELSEWHERE
    return error.fault is CarrierFault.INCOMPLETE or is_unreadable
