"""The importer: takes each carrier from the inbox through all checks, in order (AGB0 4.5).

Nothing is written to an import stream before everything about a bundle holds. The inbox is grouped
into carriers first, and carriers are sorted by stream and sequence number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from bridge.carrier.bag import Bag
from bridge.carrier.directory import BagPath
from bridge.carrier.format import Carrier
from bridge.carrier.verify import VerifyReport
from bridge.errors import CarrierFault, CarrierRefused, Level
from bridge.importer.admission import Candidate, admit
from bridge.importer.approvals import approval_state
from bridge.importer.commit import BundleCommitter, ImportBatch
from bridge.importer.context import ImportContext
from bridge.importer.examine import (
    ExaminedCarrier,
    LoadedBundle,
    examined,
    load,
    verification,
)
from bridge.importer.finish import ImportDecision, finish_decision, finish_interrupted
from bridge.importer.holding import heartbeat
from bridge.importer.ledger import BundleRow, ImportPlan, SourceStream
from bridge.importer.ledger_file import BadLedger
from bridge.importer.outcome import ImportOutcome, ImportState, IncomingCarrier, claim_of
from bridge.importer.quarantine import contradict, no_space, refuse, unsigned_in_inbox
from bridge.importer.staging import (
    InsufficientSpace,
    Received,
    SignedBag,
    check_signed,
    copy_bag,
    digest_of,
    fingerprint,
    verify_space,
)
from bridge.importer.trust_audit import audit_trust_changes
from bridge.verify import VerifiedBundle
from veen.digest import h

_BATCH: Final = 100_000
"""How many bags are grouped at a time. A carrier can have a few hundred."""


@dataclass(frozen=True, slots=True)
class CarrierGroup:
    """The bags of one carrier in the inbox, before any verification.

    ``count`` is how many bags it claims to have; an entry that is no bag is a group of its own, to
    be refused.
    """

    bags: tuple[Path, ...]
    count: int
    order: tuple[bytes, str, int, str]

    @property
    def name(self) -> str:
        return self.bags[0].name

    @property
    def is_whole(self) -> bool:
        return len(self.bags) >= self.count


def groups(inbox: Path) -> Iterator[CarrierGroup]:
    """All carriers of the inbox, including those that stay in it."""
    with os.scandir(inbox) as entries:
        names = iter(sorted(entry.name for entry in entries if not entry.name.startswith(".")))
    while batch := list(islice(names, _BATCH)):
        yield from _sorted(inbox, batch)


def _sorted(inbox: Path, names: list[str]) -> list[CarrierGroup]:
    by_carrier: dict[bytes, CarrierGroup] = {}
    for name in names:
        path = inbox / name
        carrier = _carrier(path)
        key = h(carrier.encode()) if carrier else os.fsencode(name)
        known = by_carrier.get(key)
        if known is None:
            count = carrier.bags if carrier else 1
            by_carrier[key] = CarrierGroup((path,), count, _order(path, carrier))
        else:
            by_carrier[key] = CarrierGroup((*known.bags, path), known.count, known.order)
    return sorted(by_carrier.values(), key=lambda group: group.order)


def _carrier(path: Path) -> Carrier | None:
    try:
        bag = Bag(path)
    except CarrierRefused:
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
        self._committer = BundleCommitter(context)

    def recover(self) -> list[ImportOutcome]:
        """Complete what an earlier run was interrupted in."""
        context = self._context
        finish_interrupted(context)
        audit_trust_changes(context)
        plans = context.ledger.open_plans()
        context.import_dir.tidy(frozenset(plan.source for plan in plans))
        context.import_dir.name_inbox()
        return [self._resume(plan) for plan in plans]

    def take(self, group: CarrierGroup) -> Iterator[ImportOutcome]:
        """Import a carrier of the inbox from a private copy.

        Each bag must be signed before anything is copied; an unsigned bag says nothing about the
        others, whose table of volumes it may have copied.
        """
        signed: list[SignedBag] = []
        for path in group.bags:
            bag = BagPath(path.parent, (path.name,))
            try:
                signed.append(self.signed(bag))
            except CarrierRefused as error:
                yield self.finish(unsigned_in_inbox(self._context, bag, error))
        if signed:
            yield self._take(signed)

    def take_held(self) -> Iterator[ImportOutcome]:
        """Import held bundles that are now admissible, until none is."""
        done: set[bytes] = set()
        while ready := [row for row in self._ready() if row.bundle_id not in done]:
            done.add(ready[0].bundle_id)
            place = self._context.import_dir.waiting(ready[0].bundle_id)
            yield self._process(IncomingCarrier.held(ready[0].bundle_id, place, ready[0].sha256))

    def signed(self, bag: BagPath) -> SignedBag:
        return check_signed(bag, self._context.trust, self._context.settings.max_carrier_bytes)

    def finish(self, decision: ImportDecision) -> ImportOutcome:
        return finish_decision(self._context, decision)

    def _take(self, bags: Sequence[SignedBag]) -> ImportOutcome:
        import_dir, name = self._context.import_dir, bags[0].where.name
        try:
            verify_space(self._context.settings, bags, copies=1)
        except InsufficientSpace as error:
            return self.finish(no_space(self._context, name, error))
        attempt = import_dir.attempt(self._context.random(8).hex())
        inbox = tuple(import_dir.inside(bag.where.path) for bag in bags)
        carrier = IncomingCarrier(name=name, place=attempt, bags=(), inbox=inbox, sha256=h(b""))
        try:
            received = list(self._copied(bags, attempt))
        except CarrierRefused as error:
            lines = [line for bag in bags for line in fingerprint(bag.where)]
            carrier = replace(carrier, sha256=digest_of(lines))
            return self.finish(refuse(self._context, carrier, error, None))
        return self._process(_received(carrier, received))

    def _copied(self, bags: Sequence[SignedBag], attempt: Path) -> Iterator[Received]:
        for number, bag in enumerate(bags, 1):
            target = attempt / f"bag-{number:03d}"
            with self._context.watch_of(bag.where.name)("copying", "bytes") as progress:
                received = copy_bag(bag, target, progress)
            yield received

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
            return (approvals.is_met and context.may_import(row.bundle_id)) or bool(
                approvals.rejected
            )
        return context.ledger.holds(stream, before) or context.accepts_gap(row.bundle_id)

    def _process(self, carrier: IncomingCarrier) -> ImportOutcome:
        """Examine a carrier, decide about it while it is open, then commit or finish it."""
        decided = self._decide(carrier)
        if isinstance(decided, ImportBatch):
            return self._committer.commit(decided)
        return self.finish(decided)

    def _decide(self, carrier: IncomingCarrier) -> ImportDecision | ImportBatch:
        context, row, report = self._context, None, VerifyReport(asked=Level.VALID)
        with verification(context, carrier.name) as verify_context:
            try:
                with examined(carrier.bags, verify_context, report) as carrier_content:
                    verified = carrier_content.report.bundle
                    context.ledger.note_carrier(carrier_content.ledger)
                    if verified is None:
                        return self._heartbeat(carrier, carrier_content)
                    row = _row(verified)
                    loaded = load(carrier_content.content, verified, verify_context.watch)
                    row = replace(row, sha256=loaded.sha256)
                    candidate = Candidate(carrier, row, carrier_content, verified, loaded)
                    return admit(context, candidate, verify_context.scratch)
            except CarrierRefused as error:
                return refuse(context, carrier, error, row or claim_of(report))

    def _heartbeat(self, carrier: IncomingCarrier, examined: ExaminedCarrier) -> ImportDecision:
        checkpoint = examined.report.checkpoint
        contradiction = checkpoint and self._context.checkpoints.compare(checkpoint)
        if contradiction:
            return contradict(self._context, carrier, None, contradiction)
        return heartbeat(self._context, carrier, examined.ledger)

    def _resume(self, plan: ImportPlan) -> ImportOutcome:
        """Resume a plan; a bundle that was handed over is not read again."""
        context, committer = self._context, self._committer
        row = context.ledger.bundle(plan.bundle_id)
        if row is None:
            raise BadLedger(
                f"{context.import_dir.ledger}: expected the bundle of plan {plan.plan_id.hex()}, "
                f"{plan.bundle_id.hex()}, got none; rebuild the ledger with "
                "veen bridge import --rebuild-ledger"
            )
        resumed_from = committer.acknowledged(row, plan)
        place = committer.move_bags(plan)
        if not committer.was_handed_over(plan):
            carrier = IncomingCarrier.held(row.bundle_id, place, row.sha256)
            try:
                loaded = self._reload(carrier, plan)
            except CarrierRefused as error:
                return self.finish(refuse(context, carrier, error, row, plan))
            committer.hand_over(row, plan, loaded)
        return committer.complete(row, plan, resumed_from)

    def _reload(self, carrier: IncomingCarrier, plan: ImportPlan) -> LoadedBundle:
        with (
            verification(self._context, carrier.name) as verify_context,
            examined(carrier.bags, verify_context) as carrier_content,
        ):
            verified = carrier_content.report.bundle
            if verified is None or verified.survey.digest != plan.bundle_id:
                other = "a heartbeat" if verified is None else verified.survey.digest.hex()
                raise CarrierRefused(
                    CarrierFault.BUNDLE_ID,
                    f"expected bundle {plan.bundle_id.hex()} of its plan, got {other}",
                )
            return load(carrier_content.content, verified, verify_context.watch)


def _received(carrier: IncomingCarrier, received: Sequence[Received]) -> IncomingCarrier:
    """The carrier with its copied bags. A bag that was received twice counts once."""
    first: dict[bytes, str] = {}
    for path, bag in zip(carrier.inbox, received, strict=True):
        first.setdefault(bag.sha256, path)
    return replace(
        carrier,
        bags=tuple(bag.root for bag in received),
        doubled=tuple(path for path in carrier.inbox if path not in first.values()),
        sha256=next(iter(first)) if len(first) == 1 else h(b"".join(first)),
    )


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
