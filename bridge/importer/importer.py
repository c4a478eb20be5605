"""The importer: each carrier from the inbox to where it belongs, checks in their order (AGB0 4.5).

Nothing is written to an import stream before everything about a bundle holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bridge.carrier.bag_path import BagPath
from bridge.carrier.check import Means, Report
from bridge.importer.admission import Admission, Candidate
from bridge.importer.approvals import standing
from bridge.importer.claim import claim_of
from bridge.importer.closing import close
from bridge.importer.commit import Batch, Committer
from bridge.importer.examine import Examined, Loaded, examined, load
from bridge.importer.groups import Group
from bridge.importer.holding import Holding
from bridge.importer.ledger_tables import BundleRow, Plan, Stream
from bridge.importer.outcome import Outcome, State
from bridge.importer.receive import Received, copy_bag
from bridge.importer.room import NoRoom, verify_room
from bridge.importer.signed_bag import SignedBag, check_signed, digest_of, fingerprint
from bridge.importer.tools import Tools
from bridge.importer.trust_told import tell_trust
from bridge.importer.unsigned import Unsigned
from bridge.importer.verdicts import Verdicts
from bridge.importer.work import Work
from bridge.refusal import Fault, Level, Refused
from bridge.verify import Verified
from veen import durable
from veen.digest import h


class Importer:
    """One run; whoever makes it holds the airlock's lock."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._verdicts = Verdicts(tools)
        self._committer = Committer(tools)
        self._admission = Admission(tools, self._verdicts, self._means)

    def recover(self) -> list[Outcome]:
        """Finish what an earlier run was cut short in; then nothing is open any more."""
        tools = self._tools
        tools.trail.settle()
        for closing in tools.ledger.closings():
            close(tools, closing)
        tell_trust(tools)
        plans = tools.ledger.open_plans()
        tools.airlock.tidy(frozenset(plan.source for plan in plans))
        tools.airlock.name_inbox()
        return [self._resume(plan) for plan in plans]

    def take(self, group: Group) -> Iterator[Outcome]:
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

    def _take(self, bags: Sequence[SignedBag]) -> Outcome:
        airlock, name = self._tools.airlock, bags[0].where.name
        try:
            verify_room(self._tools.settings, bags, copies=1)
        except NoRoom as error:
            return self._verdicts.no_room(name, error)
        attempt = airlock.attempt(self._tools.random(8).hex())
        inbox = tuple(airlock.inside(one.where.path) for one in bags)
        work = Work(name=name, place=attempt, bags=(), inbox=inbox, sha256=h(b""))
        try:
            received = list(self._copied(bags, attempt))
        except Refused as error:
            lines = [line for one in bags for line in fingerprint(one.where)]
            return self._verdicts.refused(replace(work, sha256=digest_of(lines)), error, None)
        once: dict[bytes, str] = {}
        for path, one in zip(inbox, received, strict=True):
            once.setdefault(one.sha256, path)
        return self._process(
            replace(
                work,
                bags=tuple(one.root for one in received),
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

    def take_held(self) -> Iterator[Outcome]:
        """Bundles that waited and may go in by now, until none of them may."""
        done: set[bytes] = set()
        while found := [one for one in self._ready() if one.bundle_id not in done]:
            done.add(found[0].bundle_id)
            place = self._tools.airlock.waiting(found[0].bundle_id)
            yield self._process(Work.held(found[0].bundle_id, place, found[0].sha256))

    def _ready(self) -> list[BundleRow]:
        held = self._tools.ledger.bundles(State.WAITING, State.BLOCKED, State.FROZEN)
        return [row for row in held if self._is_ready(row)]

    def _is_ready(self, row: BundleRow) -> bool:
        tools, before = self._tools, row.from_seq - 1
        stream = Stream(row.source_hub_id, row.stream)
        if tools.rejects(row.bundle_id):
            return True
        if row.state == State.FROZEN.value:
            return tools.ledger.frozen_at(stream) is None
        if row.state == State.BLOCKED.value:
            rules, folder = tools.settings.approvals, tools.airlock.approvals
            found = standing(folder, row.bundle_id, row.stream, rules)
            return (found.is_met and tools.lets_in(row.bundle_id)) or bool(found.rejected)
        return tools.ledger.holds(stream, before) or tools.accepts_gap(row.bundle_id)

    def _process(self, work: Work) -> Outcome:
        settled, row, report = None, None, Report(asked=Level.VALID)
        with self._means(work.name) as means:
            try:
                with examined(work.bags, means, report) as found:
                    verified = found.report.bundle
                    self._tools.ledger.note_carrier(found.ledger)
                    if verified is None:
                        return self._heartbeat(work, found)
                    row = _row(verified)
                    loaded = load(found.content, verified, means.watch)
                    row = replace(row, sha256=loaded.sha256)
                    one = Candidate(work, row, found, verified, loaded)
                    settled = self._admission.settle(one, means.scratch)
            except Refused as error:
                return self._verdicts.refused(work, error, row or claim_of(report))
        return self._committer.commit(settled) if isinstance(settled, Batch) else settled

    def _heartbeat(self, work: Work, found: Examined) -> Outcome:
        checkpoint = found.report.checkpoint
        wrong = checkpoint and self._tools.checkpoints.judge(checkpoint)
        if wrong:
            return self._verdicts.contradicted(work, None, wrong)
        return Holding(self._tools).heartbeat(work, found.ledger)

    def _resume(self, plan: Plan) -> Outcome:
        """Go on with a plan; of what was handed over nothing is read again."""
        tools, committer = self._tools, self._committer
        row = tools.ledger.bundle(plan.bundle_id)
        if row is None:
            raise Refused(Fault.LEDGER, f"the ledger has a plan for {plan.bundle_id.hex()} alone")
        resumed_from = committer.landed(row, plan)
        place = committer.settle_place(plan)
        if not committer.was_handed_over(plan):
            work = Work.held(row.bundle_id, place, row.sha256)
            try:
                loaded = self._reload(work, plan)
            except Refused as error:
                return self._verdicts.refused(work, error, row, plan)
            committer.hand_over(row, plan, loaded)
        return committer.complete(row, plan, resumed_from)

    def _reload(self, work: Work, plan: Plan) -> Loaded:
        with self._means(work.name) as means, examined(work.bags, means) as found:
            verified = found.report.bundle
            if verified is None or verified.survey.digest != plan.bundle_id:
                raise Refused(Fault.BUNDLE_ID, "it is not the bundle of the plan")
            return load(found.content, verified, means.watch)

    @contextmanager
    def _means(self, name: str) -> Iterator[Means]:
        """For the carrier of that name; with room for what is unpacked, gone afterwards."""
        tools = self._tools
        scratch = tools.airlock.staging / f"{tools.random(8).hex()}-work"
        scratch.mkdir(mode=durable.DIR_MODE)
        try:
            yield Means(
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


def _row(verified: Verified) -> BundleRow:
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
