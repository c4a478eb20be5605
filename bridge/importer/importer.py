"""The importer: each carrier from the inbox to where it belongs, checks in their order (AGB0 4.5).

Nothing is written to an import stream before everything about a bundle holds.

The inbox, sorted: which bags belong together, and in which order carriers should go in.
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
from bridge.importer.approvals import standing
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
from bridge.importer.trust_audit import tell_trust
from bridge.verify import VerifiedBundle
from veen.digest import h
from veen.system import durable

_AT_A_TIME: Final = 100_000
"""How many bags are looked at together. Of one carrier there can be a few hundred."""


@dataclass(frozen=True, slots=True)
class Group:
    """The bags of one carrier as far as they are here; nothing of it is verified yet.

    ``due`` is how many bags it says it has; what is no bag is a group of its own, to be refused.
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
    """All that lies in the inbox, so that what stays in it stands in nobody's way."""
    with os.scandir(inbox) as entries:
        names = iter(sorted(entry.name for entry in entries if not entry.name.startswith(".")))
    while some := list(islice(names, _AT_A_TIME)):
        yield from _sorted(inbox, some)


def _sorted(inbox: Path, names: list[str]) -> list[Group]:
    result: dict[bytes, Group] = {}
    for name in names:
        path = inbox / name
        carrier = _carrier(path)
        key = h(carrier.encode()) if carrier else os.fsencode(name)
        known = result.get(key)
        if known is None:
            due = carrier.bags if carrier else 1
            result[key] = Group((path,), due, _order(path, carrier))
        else:
            result[key] = Group((*known.bags, path), known.due, known.order)
    return sorted(result.values(), key=lambda item: item.order)


def _carrier(path: Path) -> Carrier | None:
    try:
        bag = Bag(path)
    except Refused:
        return None
    bag.close()
    return bag.carrier


def _order(path: Path, carrier: Carrier | None) -> tuple[bytes, str, int, str]:
    """Streams from their beginning on, as far as a carrier tells it in the open."""
    if carrier is None or carrier.ledger is None:
        return b"", "", 0, path.name
    entry = carrier.ledger.tail[-1]
    return entry.hub_id, entry.stream, entry.from_seq, path.name


class Importer:
    """One run; whoever makes it holds the airlock's lock."""

    def __init__(self, tools: ImportContext) -> None:
        self._tools = tools
        self._verdicts = Verdicts(tools)
        self._committer = BundleCommitter(tools)
        self._admission = BundleAdmission(tools, self._verdicts, self._means)

    def recover(self) -> list[ImportOutcome]:
        """Finish what an earlier run was cut short in; then nothing is open any more."""
        tools = self._tools
        tools.audit_outbox.settle()
        for closing in tools.ledger.closings():
            apply_pending(tools, closing)
        tell_trust(tools)
        plans = tools.ledger.open_plans()
        tools.airlock.tidy(frozenset(plan.source for plan in plans))
        tools.airlock.name_inbox()
        return [self._resume(plan) for plan in plans]

    def take(self, group: Group) -> Iterator[ImportOutcome]:
        """A carrier of the inbox: copied once, and from then on only the copy counts.

        Each bag must be signed before anything is copied; one that is not says nothing about the
        others, whose table of volumes it may have copied.
        """
        signed: list[SignedBag] = []
        for path in group.bags:
            bag = BagPath(path.parent, (path.name,))
            try:
                signed.append(self.signed(bag))
            except Refused as error:
                yield Unsigned(self._tools).in_inbox(bag, error)
        if signed:
            yield self._take(signed)

    def signed(self, bag: BagPath) -> SignedBag:
        return check_signed(bag, self._tools.trust, self._tools.settings.max_carrier_bytes)

    def _take(self, bags: Sequence[SignedBag]) -> ImportOutcome:
        airlock, name = self._tools.airlock, bags[0].where.name
        try:
            verify_room(self._tools.settings, bags, copies=1)
        except InsufficientSpace as error:
            return self._verdicts.no_room(name, error)
        attempt = airlock.attempt(self._tools.random(8).hex())
        inbox = tuple(airlock.inside(bag.where.path) for bag in bags)
        work = IncomingCarrier(name=name, place=attempt, bags=(), inbox=inbox, sha256=h(b""))
        try:
            received = list(self._copied(bags, attempt))
        except Refused as error:
            lines = [line for bag in bags for line in fingerprint(bag.where)]
            return self._verdicts.refused(replace(work, sha256=digest_of(lines)), error, None)
        once: dict[bytes, str] = {}
        for path, item in zip(inbox, received, strict=True):
            once.setdefault(item.sha256, path)
        return self._process(
            replace(
                work,
                bags=tuple(item.root for item in received),
                doubled=tuple(path for path in inbox if path not in once.values()),
                sha256=next(iter(once)) if len(once) == 1 else h(b"".join(once)),
            )
        )

    def _copied(self, bags: Sequence[SignedBag], attempt: Path) -> Iterator[Received]:
        for number, bag in enumerate(bags, 1):
            target = attempt / f"bag-{number:03d}"
            with self._tools.watch_of(bag.where.name)("copying", "bytes") as progress:
                received = copy_bag(bag, target, progress)
            yield received

    def take_held(self) -> Iterator[ImportOutcome]:
        """Bundles that waited and may go in by now, until none of them may."""
        done: set[bytes] = set()
        while result := [item for item in self._ready() if item.bundle_id not in done]:
            done.add(result[0].bundle_id)
            place = self._tools.airlock.waiting(result[0].bundle_id)
            yield self._process(IncomingCarrier.held(result[0].bundle_id, place, result[0].sha256))

    def _ready(self) -> list[BundleRow]:
        held = self._tools.ledger.bundles(
            ImportState.WAITING, ImportState.BLOCKED, ImportState.FROZEN
        )
        return [row for row in held if self._is_ready(row)]

    def _is_ready(self, row: BundleRow) -> bool:
        tools, before = self._tools, row.from_seq - 1
        stream = SourceStream(row.source_hub_id, row.stream)
        if tools.rejects(row.bundle_id):
            return True
        if row.state == ImportState.FROZEN.value:
            return tools.ledger.frozen_at(stream) is None
        if row.state == ImportState.BLOCKED.value:
            rules, folder = tools.settings.approvals, tools.airlock.approvals
            result = standing(folder, row.bundle_id, row.stream, rules)
            return (result.is_met and tools.lets_in(row.bundle_id)) or bool(result.rejected)
        return tools.ledger.holds(stream, before) or tools.accepts_gap(row.bundle_id)

    def _process(self, work: IncomingCarrier) -> ImportOutcome:
        settled, row, report = None, None, VerifyReport(asked=Level.VALID)
        with self._means(work.name) as means:
            try:
                with examined(work.bags, means, report) as examineds:
                    verified = examineds.report.bundle
                    self._tools.ledger.note_carrier(examineds.ledger)
                    if verified is None:
                        return self._heartbeat(work, examineds)
                    row = _row(verified)
                    loaded = load(examineds.content, verified, means.watch)
                    row = replace(row, sha256=loaded.sha256)
                    candidate = Candidate(work, row, examineds, verified, loaded)
                    settled = self._admission.settle(candidate, means.scratch)
            except Refused as error:
                return self._verdicts.refused(work, error, row or claim_of(report))
        return self._committer.commit(settled) if isinstance(settled, ImportBatch) else settled

    def _heartbeat(self, work: IncomingCarrier, examined: Examined) -> ImportOutcome:
        checkpoint = examined.report.checkpoint
        wrong = checkpoint and self._tools.checkpoints.judge(checkpoint)
        if wrong:
            return self._verdicts.contradicted(work, None, wrong)
        return Holding(self._tools).heartbeat(work, examined.ledger)

    def _resume(self, plan: ImportPlan) -> ImportOutcome:
        """Go on with a plan; of what was handed over nothing is read again."""
        tools, committer = self._tools, self._committer
        row = tools.ledger.bundle(plan.bundle_id)
        if row is None:
            raise Refused(
                CarrierFault.LEDGER, f"the ledger has a plan for {plan.bundle_id.hex()} alone"
            )
        resumed_from = committer.landed(row, plan)
        place = committer.settle_place(plan)
        if not committer.was_handed_over(plan):
            work = IncomingCarrier.held(row.bundle_id, place, row.sha256)
            try:
                loaded = self._reload(work, plan)
            except Refused as error:
                return self._verdicts.refused(work, error, row, plan)
            committer.hand_over(row, plan, loaded)
        return committer.complete(row, plan, resumed_from)

    def _reload(self, work: IncomingCarrier, plan: ImportPlan) -> Loaded:
        with self._means(work.name) as means, examined(work.bags, means) as examineds:
            verified = examineds.report.bundle
            if verified is None or verified.survey.digest != plan.bundle_id:
                raise Refused(CarrierFault.BUNDLE_ID, "it is not the bundle of the plan")
            return load(examineds.content, verified, means.watch)

    @contextmanager
    def _means(self, name: str) -> Iterator[VerifyContext]:
        """For the carrier of that name; with room for what is unpacked, gone afterwards."""
        tools = self._tools
        scratch = tools.airlock.staging / f"{tools.random(8).hex()}-work"
        scratch.mkdir(mode=durable.DIR_MODE)
        try:
            yield VerifyContext(
                trust=tools.trust,
                scratch=scratch,
                privates=tools.privates,
                limits=tools.settings.limits,
                workers=tools.settings.workers,
                watch=tools.watch_of(name),
                now=tools.now,
            )
        finally:
            tools.airlock.remove(tools.airlock.inside(scratch))


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
