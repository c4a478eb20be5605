"""Bridge steps: what is missing is named, J1 to K2 are proven, and a query is run again."""

from __future__ import annotations

from typing import Final

from bridge.audit_events import Equivocation, ImportSuccess
from bridge.export_gaps import Gap
from bridge.exporter import Opener
from bridge.prove import Claim
from bridge.prove_directions import prove_directions
from bridge.prove_events import (
    prove_completeness,
    prove_origins,
    prove_region,
    prove_traces,
)
from bridge.prove_evidence import Evidence
from bridge.reconcile.gaps import gap_files
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.reconcile import reconcile as reconciled
from bridge.reconcile.report import Report
from bridge.reconcile.stream_report import Class
from cli.bridge_actors import zone_actors
from cli.selftest.bridge_side import IMPORTED, ORDERS
from cli.selftest.bridge_world import BUNDLE_EVENTS, OPERATOR, BridgeWorld, states
from cli.selftest.step import Step, expect, expect_that
from recorder.index import rebuild
from recorder.index.home import IndexHome
from recorder.index.imported import ImportedFollower
from recorder.index.writer import writing
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import ResultDigest
from recorder.query.evidence import Placed, receipted
from recorder.query.run import digest_of, run
from recorder.query.span import searched, span_of
from recorder.service.replaying import Missing, ReplayVerdict, replay
from veen.digest import h
from veen.recorder_checkpoint import RecorderCheckpoint

_QUERY: Final = {
    "version": 1,
    "scope": [ORDERS],
    "filter": {},
    "projection": ["subject_id", "event_type", "payload.number"],
    "evidence": {"mode": "full"},
}


def reconcile(world: BridgeWorld) -> None:
    """A lost carrier is named by the next one, and what was lost is written again as it was."""
    world.record(6)
    first, lost, third = world.export()
    world.bring(world.carry(first, third))
    report = _report(world)
    expect("imported", _of(report, Class.IMPORTED), Ranges([(1, 2)]))
    expect("missing", _of(report, Class.MISSING), Ranges([(3, 4)]))
    expect("waiting", _of(report, Class.WAITING), Ranges([(5, 6)]))
    (file,) = gap_files(report)
    expect("the gap file", file.gaps, (Gap(ORDERS, 3, 4),))
    (again,) = world.export(file.gaps)
    expect("the bundle that is written again", again.entry.bundle_id, lost.entry.bundle_id)
    expect("outcomes", states(world.bring(world.carry(again))), ["imported", "imported"])
    after = _report(world)
    expect("whole, and imported", (after.is_whole, _of(after, Class.IMPORTED)),
           (True, Ranges([(1, 6)])))  # fmt: skip


def claims(world: BridgeWorld) -> None:
    """J1 to J3, K1 with the exporter's own log that was carried after its events, and K2."""
    _bring_all(world)
    world.checkpoint()
    world.bring(world.carry(*world.export()))
    found = {one.name: one for one in _claims(world)}
    untrue = {name: one.document() for name, one in found.items() if not one.holds}
    expect("claims that do not hold", untrue, {})
    expect("claims", list(found), ["J1", "J2", "J3", "K1", "K2"])
    expect("events that are traced", found["K1"].witness["traced"], len(world.recorded))
    expect("keys in both zones", found["J3"].witness["keys"]["in_both"], 0)
    regions = {one["stream"]: one["to_seq"] for one in found["K2"].witness["regions"]}
    expect("the closed region", regions[ORDERS], len(world.recorded))


def claims_broken(world: BridgeWorld) -> None:
    """Identities that do what they should not: each claim finds it out and names it."""
    _bring_all(world)
    world.record(BUNDLE_EVENTS)
    unbrought = _carried_log(world)
    world.smuggle([one.encode() for one in world.imported()[:BUNDLE_EVENTS]])
    world.smuggle([world.by_hand(len(world.recorded) - 1, unbrought).encode()])
    world.claim(_success_of_nothing(world), _equivocation(world))
    found = {one.name: one for one in _claims(world)}
    for name, what, told in (
        ("J1", "a bundle that stands twice", "stands twice"),
        ("J2", "a success of what never came", "was not imported"),
        ("K1", "an event of no audited import", "no success of bundle"),
        ("K2", "a stream with two histories", "has two histories"),
    ):
        expect_that(not found[name].holds, f"{name} does not hold of {what}")
        expect_that(told in str(found[name].counterexample), f"{name} names {what}")
    there = zone_actors(world.online, world.z1.hub.settings)
    expect_that(not prove_directions(there, there).holds, "J3 does not hold of shared keys")


def _carried_log(world: BridgeWorld) -> bytes:
    """Bring the exporter's log, and not the bundle of orders that it tells of last."""
    exported = world.export()
    world.checkpoint()
    exported += world.export()
    orders = [one for one in exported if one.entry.stream == ORDERS]
    world.bring(world.carry(*(one for one in exported if one not in orders)))
    return orders[-1].entry.bundle_id or b""


def _success_of_nothing(world: BridgeWorld) -> ImportSuccess:
    last = len(world.recorded)
    return ImportSuccess(
        operator=OPERATOR,
        bundle_id=h(b"a bundle that never came"),
        sha256=h(b""),
        source_hub_id=world.z1.identity.hub_id,
        stream=ORDERS,
        from_seq=last,
        to_seq=last,
        count=1,
        target=IMPORTED,
        target_from=last,
        target_to=last,
        imported=1,
        duplicates=0,
        excluded=0,
        verification_result="valid",
    )


def _equivocation(world: BridgeWorld) -> Equivocation:
    return Equivocation(
        operator=OPERATOR,
        bundle_id=h(b"another history"),
        source_hub_id=world.z1.identity.hub_id,
        stream=ORDERS,
        seq=1,
        held=h(b"one"),
        other=h(b"other"),
        told="two histories",
    )


def query_replay(world: BridgeWorld) -> None:
    """A query of Z1 over imported events: the range that is missing, then the same digest."""
    world.record(4)
    first, second = world.export()
    checkpoint = world.checkpoint()
    descriptor, digest = _asked(world, checkpoint)
    world.bring(world.carry(first))
    before = _replayed(world, descriptor, digest, checkpoint)
    expect("a replay of half of it", (before.matches, before.missing),
           (False, (Missing(ORDERS, 3, 4),)))  # fmt: skip
    world.bring(world.carry(second))
    after = _replayed(world, descriptor, digest, checkpoint)
    expect(f"a replay of all of it ({after.told})", after.matches, True)


def _bring_all(world: BridgeWorld) -> None:
    world.record(3)
    expect("outcomes", states(world.bring(world.carry(*world.export()))), ["imported"] * 2)


def _report(world: BridgeWorld) -> Report:
    return reconciled(world.collected().facts)


def _of(report: Report, wanted: Class) -> Ranges:
    return next(one.classes[wanted] for one in report.streams if one.stream == ORDERS)


def _claims(world: BridgeWorld) -> list[Claim]:
    evidence = Evidence(world.trust.hubs)
    facts = world.collected(evidence).facts
    numbers = {one.bundle_id: one.n for one in facts.entries if one.bundle_id}
    return [
        prove_origins(evidence),
        prove_completeness(evidence),
        prove_directions(
            zone_actors(world.online, world.z1.hub.settings),
            zone_actors(world.offline, world.z2.hub.settings),
        ),
        prove_traces(evidence, numbers),
        prove_region(evidence, reconciled(facts)),
    ]


def _asked(world: BridgeWorld, checkpoint: RecorderCheckpoint) -> tuple[Descriptor, ResultDigest]:
    """The answer to a query in Z1, made from the log itself."""
    descriptor = normalise(_QUERY, query_id_if_missing="q-1")
    with world.z1.acting("bridge") as client:
        opener = Opener(client.session.identity.readers(), client.session.limits)
        events = [opener.event(pair) for pair in client.read(ORDERS)]
    at = Placed(ORDERS, world.z1.identity)
    entries = [receipted(one.payload, one.receipt, one.body_key or b"", at) for one in events]
    outcome = run(descriptor, entries, checkpoint.log_root)
    span = span_of(descriptor.filter, len(entries), lambda seq: entries[seq - 1].hub_ts)
    digest = digest_of(
        descriptor,
        outcome,
        result_id="r-1",
        executed_at_ms=1_000 * checkpoint.created_at,
        checkpoint=checkpoint,
        searched=searched(descriptor, checkpoint, {ORDERS: span}, outcome.unread),
    )
    return descriptor, digest


def _replayed(
    world: BridgeWorld,
    descriptor: Descriptor,
    digest: ResultDigest,
    checkpoint: RecorderCheckpoint,
) -> ReplayVerdict:
    home = IndexHome(world.root / "index")
    with (
        world.z2.acting("reader") as reader,
        home.locked(),
        writing(rebuild.create(home, world.z2.identity.hub_id)) as writer,
    ):
        ImportedFollower(reader, writer, world.trust.hubs, frozenset([IMPORTED])).round()
    return replay(home, descriptor, digest, checkpoint, world.z1.identity)


STEPS: Final = (
    Step("reconcile", reconcile),
    Step("claims", claims),
    Step("claims-broken", claims_broken),
    Step("query-replay", query_replay),
)
