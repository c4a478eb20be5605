"""Bridge steps: what is missing is named, and J1 to K2 are proven."""

from __future__ import annotations

from typing import Final

from bridge.audit_events import Equivocation, ImportSuccess
from bridge.export_gaps import Gap
from bridge.prove import Claim
from bridge.prove_directions import ZoneActors, prove_directions
from bridge.prove_events import prove_completeness, prove_origins, prove_region
from bridge.prove_evidence import Evidence
from bridge.prove_read_only import prove_read_only
from bridge.prove_traces import prove_traces
from bridge.reconcile.gaps import gap_files
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.reconcile import reconcile as reconciled
from bridge.reconcile.report import Report
from bridge.reconcile.stream_report import Class
from bridge.settings import Settings
from cli.bridge_actors import zone_actors
from cli.bridge_granted import read_granted
from cli.selftest import bridge_query
from cli.selftest.bridge_side import IMPORTED, ORDERS, Side
from cli.selftest.bridge_world import BUNDLE_EVENTS, OPERATOR, BridgeWorld, states
from cli.selftest.step import Step, expect, expect_that
from veen.digest import h


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
    """J1 to J3, AGB0 4.3, K1 with the exporter's log, carried after its events, and K2."""
    _bring_all(world)
    world.checkpoint()
    world.bring(world.carry(*world.export()))
    found = {one.name: one for one in _claims(world)}
    untrue = {name: one.document() for name, one in found.items() if not one.holds}
    expect("claims that do not hold", untrue, {})
    expect("claims", list(found), ["J1", "J2", "J3", "AGB0-4.3", "K1", "K2"])
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
    world.z1.grant(world.z2.keys["reader"], ORDERS)
    back = prove_directions(_actors(world.online, world.z1), _actors(world.offline, world.z2))
    due = (world.z2.keys["reader"].hex(), ORDERS)
    expect_that(not back.holds, "J3 does not hold of a key of Z2 that may write in Z1")
    expect_that(all(one in str(back.counterexample) for one in due), "J3 names key and stream")


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
    evidence.completed = world.completions()
    return [
        prove_origins(evidence),
        prove_completeness(evidence),
        prove_directions(_actors(world.online, world.z1), _actors(world.offline, world.z2)),
        prove_read_only(_actors(world.online, world.z1)),
        prove_traces(evidence, facts.entries),
        prove_region(evidence, reconciled(facts)),
    ]


def _actors(settings: Settings, side: Side) -> ZoneActors:
    granted = read_granted(side.hub.datadir.root, side.identity.hub_id)
    return zone_actors(settings, side.hub.settings, granted)


STEPS: Final = (
    Step("reconcile", reconcile),
    Step("claims", claims),
    Step("claims-broken", claims_broken),
    *bridge_query.STEPS,
)
