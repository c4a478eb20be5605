"""The importer: takes each carrier from the inbox through all checks, in order (AGB0 4.5).

Nothing is written to an import stream before everything about a bundle holds. The inbox is grouped
into carriers first, and carriers are sorted by stream and sequence number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from bridge.carrier.bag import Bag
from bridge.carrier.directory import BagPath
from bridge.carrier.format import Carrier
from bridge.carrier.verify import VerifyContext, VerifyReport
from bridge.errors import CarrierFault, Level, Refused
from bridge.importer.admission import BundleAdmission, Candidate
from bridge.importer.approvals import approval_state
from bridge.importer.commit import BundleCommitter, ImportBatch
from bridge.importer.context import ImportContext
from bridge.importer.examine import Examined, Loaded, examined, load
from bridge.importer.finish import apply_pending
from bridge.importer.ledger import BundleRow, ImportPlan, SourceStream
from bridge.importer.outcome import ImportOutcome, ImportState, IncomingCarrier, claim_of
from bridge.importer.quarantine import Holding, Unsigned, Verdicts
from bridge.importer.staging import (
    InsufficientSpace,
    Received,
    SignedBag,
    check_signed,
    copy_bag,
    digest_of,
    fingerprint,
    verify_room,
)
from bridge.importer.trust_audit import audit_trust_changes
from bridge.verify import VerifiedBundle
from veen.digest import h
from veen.system import durable

_BATCH: Final = 100_000
"""How many bags are grouped at a time. A carrier can have a few hundred."""


@dataclass(frozen=True, slots=True)
class Group:
    """The bags of one carrier in the inbox, before any verification.

    ``due`` is how many bags it claims to have; an entry that is no bag is a group of its own, to
    be refused.
    """

    bags: tuple[Path, ...]
    due: int
    order: tuple[bytes, str, int, str]

    @property
    def name(self) -> str:
        return self.bags[0].name

    @property
    def is_whole(self) -> bool:
        return len(self.bags) >= self.due


def groups(inbox: Path) -> Iterator[Group]:
    """All carriers of the inbox, including those that stay in it."""
    with os.scandir(inbox) as entries:
        names = iter(sorted(entry.name for entry in entries if not entry.name.startswith(".")))
    while batch := list(islice(names, _BATCH)):
        yield from _sorted(inbox, batch)


def _sorted(inbox: Path, names: list[str]) -> list[Group]:
    by_carrier: dict[bytes, Group] = {}
    for name in names:
        path = inbox / name
        carrier = _carrier(path)
        key = h(carrier.encode()) if carrier else os.fsencode(name)
        known = by_carrier.get(key)
        if known is None:
            count = carrier.bags if carrier else 1
            by_carrier[key] = Group((path,), count, _order(path, carrier))
        else:
            by_carrier[key] = Group((*known.bags, path), known.due, known.order)
    return sorted(by_carrier.values(), key=lambda group: group.order)


def _carrier(path: Path) -> Carrier | None:
    try:
        bag = Bag(path)
    except Refused:
        return None
    bag.close()
    return bag.carrier


def _order(path: Path, carrier: Carrier | None) -> tuple[bytes, str, int, str]:
    """The sort key: streams from their beginning on, as far as the carrier is not encrypted."""
    if carrier is None or carrier.ledger is None:
        return b"", "", 0, path.name
    entry = carrier.ledger.tail[-1]
    return entry.hub_id, entry.stream, entry.from_seq, path.name


class Importer:
    """A run of the importer; the caller holds the lock of its directory."""

    def __init__(self, context: ImportContext) -> None:
        self._context = context
        self._verdicts = Verdicts(context)
        self._committer = BundleCommitter(context)
        self._admission = BundleAdmission(context, self._verdicts, self._verify_context)

    def recover(self) -> list[ImportOutcome]:
        """Complete what an earlier run was interrupted in."""
        context = self._context
        context.audit_outbox.settle()
        for pending in context.ledger.closings():
            apply_pending(context, pending)
        audit_trust_changes(context)
        plans = context.ledger.open_plans()
        context.import_dir.tidy(frozenset(plan.source for plan in plans))
        context.import_dir.name_inbox()
        return [self._resume(plan) for plan in plans]

    def take(self, group: Group) -> Iterator[ImportOutcome]:
        """Import a carrier of the inbox from a private copy.

        Each bag must be signed before anything is copied; an unsigned bag says nothing about the
        others, whose table of volumes it may have copied.
        """
        signed: list[SignedBag] = []
        for path in group.bags:
            bag = BagPath(path.parent, (path.name,))
            try:
                signed.append(self.signed(bag))
            except Refused as error:
                yield Unsigned(self._context).in_inbox(bag, error)
        if signed:
            yield self._take(signed)

    def signed(self, bag: BagPath) -> SignedBag:
        return check_signed(bag, self._context.trust, self._context.settings.max_carrier_bytes)

    def _take(self, bags: Sequence[SignedBag]) -> ImportOutcome:
        import_dir, name = self._context.import_dir, bags[0].where.name
        try:
            verify_room(self._context.settings, bags, copies=1)
        except InsufficientSpace as error:
            return self._verdicts.no_room(name, error)
        attempt = import_dir.attempt(self._context.random(8).hex())
        inbox = tuple(import_dir.inside(bag.where.path) for bag in bags)
        carrier = IncomingCarrier(name=name, place=attempt, bags=(), inbox=inbox, sha256=h(b""))
        try:
            received = list(self._copied(bags, attempt))
        except Refused as error:
            lines = [line for bag in bags for line in fingerprint(bag.where)]
            return self._verdicts.refused(replace(carrier, sha256=digest_of(lines)), error, None)
        once: dict[bytes, str] = {}
        for path, received_bag in zip(inbox, received, strict=True):
            once.setdefault(received_bag.sha256, path)
        return self._process(
            replace(
                carrier,
                bags=tuple(received_bag.root for received_bag in received),
                doubled=tuple(path for path in inbox if path not in once.values()),
                sha256=next(iter(once)) if len(once) == 1 else h(b"".join(once)),
            )
        )

    def _copied(self, bags: Sequence[SignedBag], attempt: Path) -> Iterator[Received]:
        for number, bag in enumerate(bags, 1):
            target = attempt / f"bag-{number:03d}"
            with self._context.watch_of(bag.where.name)("copying", "bytes") as progress:
                received = copy_bag(bag, target, progress)
            yield received

    def take_held(self) -> Iterator[ImportOutcome]:
        """Import held bundles that are now admissible, until none is."""
        done: set[bytes] = set()
        while ready := [row for row in self._ready() if row.bundle_id not in done]:
            done.add(ready[0].bundle_id)
            place = self._context.import_dir.waiting(ready[0].bundle_id)
            yield self._process(IncomingCarrier.held(ready[0].bundle_id, place, ready[0].sha256))

    def _ready(self) -> list[BundleRow]:
        held = self._context.ledger.bundles(
            ImportState.WAITING, ImportState.BLOCKED, ImportState.FROZEN
        )
        return [row for row in held if self._is_ready(row)]

    def _is_ready(self, row: BundleRow) -> bool:
        context, before = self._context, row.from_seq - 1
        stream = SourceStream(row.source_hub_id, row.stream)
        if context.rejects(row.bundle_id):
            return True
        if row.state == ImportState.FROZEN.value:
            return context.ledger.frozen_at(stream) is None
        if row.state == ImportState.BLOCKED.value:
            rules, folder = context.settings.approvals, context.import_dir.approvals
            approvals = approval_state(folder, row.bundle_id, row.stream, rules)
            return (approvals.is_met and context.lets_in(row.bundle_id)) or bool(approvals.rejected)
        return context.ledger.holds(stream, before) or context.accepts_gap(row.bundle_id)

    def _process(self, carrier: IncomingCarrier) -> ImportOutcome:
        settled, row, report = None, None, VerifyReport(asked=Level.VALID)
        with self._verify_context(carrier.name) as verify_context:
            try:
                with examined(carrier.bags, verify_context, report) as carrier_content:
                    verified = carrier_content.report.bundle
                    self._context.ledger.note_carrier(carrier_content.ledger)
                    if verified is None:
                        return self._heartbeat(carrier, carrier_content)
                    row = _row(verified)
                    loaded = load(carrier_content.content, verified, verify_context.watch)
                    row = replace(row, sha256=loaded.sha256)
                    candidate = Candidate(carrier, row, carrier_content, verified, loaded)
                    settled = self._admission.settle(candidate, verify_context.scratch)
            except Refused as error:
                return self._verdicts.refused(carrier, error, row or claim_of(report))
        return self._committer.commit(settled) if isinstance(settled, ImportBatch) else settled

    def _heartbeat(self, carrier: IncomingCarrier, examined: Examined) -> ImportOutcome:
        checkpoint = examined.report.checkpoint
        wrong = checkpoint and self._context.checkpoints.judge(checkpoint)
        if wrong:
            return self._verdicts.contradicted(carrier, None, wrong)
        return Holding(self._context).heartbeat(carrier, examined.ledger)

    def _resume(self, plan: ImportPlan) -> ImportOutcome:
        """Resume a plan; a bundle that was handed over is not read again."""
        context, committer = self._context, self._committer
        row = context.ledger.bundle(plan.bundle_id)
        if row is None:
            raise Refused(
                CarrierFault.LEDGER, f"the ledger has a plan for {plan.bundle_id.hex()} alone"
            )
        resumed_from = committer.landed(row, plan)
        place = committer.settle_place(plan)
        if not committer.was_handed_over(plan):
            carrier = IncomingCarrier.held(row.bundle_id, place, row.sha256)
            try:
                loaded = self._reload(carrier, plan)
            except Refused as error:
                return self._verdicts.refused(carrier, error, row, plan)
            committer.hand_over(row, plan, loaded)
        return committer.complete(row, plan, resumed_from)

    def _reload(self, carrier: IncomingCarrier, plan: ImportPlan) -> Loaded:
        with (
            self._verify_context(carrier.name) as verify_context,
            examined(carrier.bags, verify_context) as carrier_content,
        ):
            verified = carrier_content.report.bundle
            if verified is None or verified.survey.digest != plan.bundle_id:
                raise Refused(CarrierFault.BUNDLE_ID, "it is not the bundle of the plan")
            return load(carrier_content.content, verified, verify_context.watch)

    @contextmanager
    def _verify_context(self, name: str) -> Iterator[VerifyContext]:
        """The context for verifying a carrier, with a scratch directory that is removed
        afterwards.
        """
        context = self._context
        scratch = context.import_dir.staging / f"{context.random(8).hex()}-work"
        scratch.mkdir(mode=durable.DIR_MODE)
        try:
            yield VerifyContext(
                trust=context.trust,
                scratch=scratch,
                privates=context.privates,
                limits=context.settings.limits,
                workers=context.settings.workers,
                watch=context.watch_of(name),
                now=context.now,
            )
        finally:
            context.import_dir.remove(context.import_dir.inside(scratch))


def _row(verified: VerifiedBundle) -> BundleRow:
    header = verified.header
    return BundleRow(
        bundle_id=verified.survey.digest,
        state="",
        source_hub_id=header.source_hub_id,
        stream=header.export_stream,
        target="",
        from_seq=header.export_seq_from,
        to_seq=header.export_seq_to,
        checkpoint_id=header.export_checkpoint.checkpoint_id,
        checkpoint_at=header.export_checkpoint.created_at,
        sha256=b"",
    )
