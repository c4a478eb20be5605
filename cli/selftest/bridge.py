"""Bridge steps: carriers between two zones, a query run again (Query API 9.1), J1 to K2."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from bridge.audit_log import Equivocation, ImportSuccess
from bridge.carrier.format import HEADER_BYTES
from bridge.carrier.medium import carriers
from bridge.carrier.verify import check_carrier
from bridge.errors import Level
from bridge.exporter.gaps import ExportGap
from bridge.prove.claims import (
    ZoneActors,
    prove_completeness,
    prove_directions,
    prove_origins,
    prove_region,
    prove_traces,
)
from bridge.prove.evidence import BridgeClaim, ProofEvidence
from bridge.prove.read_only import prove_read_only
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.reconcile import reconcile as reconciled
from bridge.reconcile.render import gap_files
from bridge.reconcile.report import Class, ReconcileReport
from bridge.settings import BridgeSettings
from cli.selftest.samples import SelftestStep, expect, expect_that
from cli.selftest.zones import (
    BUNDLE_EVENTS,
    IMPORTED,
    IMPORTED_QUERIES,
    OPERATOR,
    ORDERS,
    BridgeSide,
    BridgeWorld,
    states,
)
from hub.storage.control_log import read_granted
from recorder.index import imports, rebuild
from recorder.index.engine import EngineLimits
from recorder.index.follower import Follower, opening
from recorder.index.imports import Imports
from recorder.index.tables import IndexHome
from recorder.index.writer import writing
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import ResultDigest
from recorder.query.package import REQUESTS, RESULT, RESULTS, SUBMITTED
from recorder.service.execute import InlineEngine
from recorder.service.rerun import (
    Beyond,
    MissingPlaces,
    ReplayVerdict,
    RerunRequest,
    find_recorded,
    read_beyond,
    replay_recorded,
)
from veen.digest import h
from veen.events import RECORD_SCHEMA, RecordEvent
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor
from zone.actors import zone_actors

_VOLUME: Final = "v001.agv"
_RESULT_ID: Final = f"r-{'0' * 31}1"
_QUERY: Final = {
    "version": 1,
    "scope": [ORDERS],
    "filter": {},
    "projection": ["subject_id", "event_type", "payload.number"],
    "evidence": {"mode": "full"},
}


def carry(world: BridgeWorld) -> None:
    """Export, offline verification and import between two hubs: every event as it was signed."""
    world.record(5)
    written = world.export()
    detail = [(item.entry.stream, item.entry.from_seq, item.entry.to_seq) for item in written]
    expect("carriers", detail, [(ORDERS, 1, 2), (ORDERS, 3, 4), (ORDERS, 5, 5)])
    medium = world.carry(*written)
    with world.means() as means:
        reports = [check_carrier(bags, Level.VALID, means) for bags in carriers([medium])]
    expect("verdicts", {report.verdict for report in reports}, {"valid"})
    expect("outcomes", states(world.bring(medium)), ["imported"] * 3)
    events = world.imported()
    for event in events:
        event.verify(world.z1.identity)
    expect(
        "places at the origin", [event.receipt().stream_seq for event in events], [1, 2, 3, 4, 5]
    )
    expect("disclosed", [event.body_key is not None for event in events], [True] * 5)
    expect("events", [event.origin_event() for event in events], world.recorded)
    expect("audit entries", world.audits(), ["import.begin", "import.success"] * 3)


def presented_again(world: BridgeWorld) -> None:
    """A carrier presented twice is imported once, and the second time is audited."""
    world.record(2)
    medium = world.carry(*world.export())
    expect("the first time", states(world.bring(medium)), ["imported"])
    expect("the second time", states(world.bring(medium)), ["duplicate"])
    expect("events that are here", len(world.imported()), 2)
    expect("the last audit entry", world.audits()[-1], "import.duplicate")


def damaged(world: BridgeWorld) -> None:
    """A carrier with a changed byte in a volume is quarantined, with the reason."""
    world.record(2)
    written = world.export()
    medium = world.carry(*written)
    (volume,) = medium.rglob(_VOLUME)
    _flip(volume, world.random.randrange(HEADER_BYTES, volume.stat().st_size))
    (outcome,) = world.bring(medium)
    expect("a changed volume", (outcome.state.value, outcome.code), ("quarantined", "E.SIG/VOLUME"))
    expect("audit entries", world.audits(), ["import.quarantined"])
    (place,) = (world.z2.root / "import" / "quarantine").iterdir()
    expect_that((place / "reason.json").is_file(), "the reason lies beside it")
    expect("the sound one", states(world.bring(world.carry(*written))), ["imported"])


def behind_a_gap(world: BridgeWorld) -> None:
    """A bundle behind a gap waits, reports the gap, and is imported once the gap is closed."""
    world.record(6)
    first, second, third = world.export()
    expect("the first", states(world.bring(world.carry(first))), ["imported"])
    (waits,) = world.bring(world.carry(third))
    detail = f"events 3 to 4 of {ORDERS} are not imported yet"
    expect("the third", (waits.state.value, waits.detail), ("waiting", detail))
    expect("events that are here", len(world.imported()), 2)
    closed = world.bring(world.carry(second))
    expect("the second, and what waited", states(closed), ["imported", "imported"])
    seqs = [event.receipt().stream_seq for event in world.imported()]
    expect("places at the origin", seqs, [1, 2, 3, 4, 5, 6])


def _flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


CARRIER_STEPS: Final = (
    SelftestStep("carry", carry),
    SelftestStep("presented-again", presented_again),
    SelftestStep("damaged", damaged),
    SelftestStep("behind-a-gap", behind_a_gap),
)


def query_replay(world: BridgeWorld) -> None:
    """A query of Z1 run again in Z2: first with a missing range, which is reported, then equal."""
    world.record(6)
    first, second, third = world.export()
    descriptor, digest = _answered(world)
    expect("events of the answer", digest.event_count, 6)
    _record(world, REQUESTS, SUBMITTED, descriptor.document())
    _record(world, RESULTS, RESULT, digest.document())
    world.checkpoint()
    world.bring(world.carry(first, third, *world.export()))
    before = _replayed(world)
    expect("a replay of half of it", (before.matches, before.missing),
           (False, (MissingPlaces(ORDERS, 3, 6),)))  # fmt: skip
    world.bring(world.carry(second))
    after = _replayed(world)
    expect(f"a replay of all of it ({after.detail})", after.matches, True)
    expect("the digest", after.rows_hash, digest.rows_hash)


def _answered(world: BridgeWorld) -> tuple[Descriptor, ResultDigest]:
    """The result of the query engine over an index of Z1."""
    home = IndexHome(world.root / "z1-index")
    descriptor = normalise(_QUERY, query_id_if_missing="q-1")
    with world.z1.acting("bridge") as client, home.locked():
        session = client.session
        generation = rebuild.create(home, world.z1.identity.hub_id)
        with (
            opening(session.identity.readers(), session.limits, 0) as opener,
            writing(generation) as writer,
        ):
            follower = Follower(client, writer, opener, frozenset([ORDERS]))
            while follower.round():
                pass
    engine = InlineEngine(
        home,
        world.root / "z1-results",
        EngineLimits(),
        hub=lambda: world.z1.identity,
        clock_ms=lambda: time.time_ns() // 1_000_000,
    )
    return descriptor, engine.run(descriptor, _RESULT_ID, engine.checkpoint(descriptor))


def _record(world: BridgeWorld, stream: str, event_type: str, payload: dict[str, Any]) -> None:
    """Record a result as the service does, sealed to the bridge, which discloses it."""
    event = RecordEvent(
        subject_id="query@z1",
        principal_id=world.z1.keys["query"],
        event_type=event_type,
        event_time=time.time_ns() // 1_000_000,
        origin="query@z1",
        payload=AnyItem(value_to_cbor(payload)),
    )
    with world.z1.acting("query") as client:
        to = world.z1.recipient("bridge")
        for _ in client.send_many(stream, [event.encode()], schema=RECORD_SCHEMA, recipient=to):
            pass


def _replayed(world: BridgeWorld) -> ReplayVerdict:
    """Run the query again over imported events, descriptor and digest only."""
    home = IndexHome(world.root / "z2-index")
    expected = Imports().joined([IMPORTED, *IMPORTED_QUERIES], world.trust.hubs)
    imports.store_import(home, expected)
    with (
        world.z2.acting("reader") as reader,
        home.locked(),
        writing(rebuild.create(home, world.z2.identity.hub_id)) as writer,
    ):
        expected.follower(reader, writer).round()

    def beyond() -> Beyond:
        with world.z2.acting("reader") as reader:
            return read_beyond(reader, home)

    return replay_recorded(
        home, find_recorded(home, RerunRequest("result_id", _RESULT_ID, None)), beyond
    )


QUERY_STEPS: Final = (SelftestStep("query-replay", query_replay),)


def reconcile(world: BridgeWorld) -> None:
    """A lost carrier is reported by the next one, and its bundle is exported again, unchanged."""
    world.record(6)
    first, lost, third = world.export()
    world.bring(world.carry(first, third))
    report = _report(world)
    expect("imported", _of(report, Class.IMPORTED), Ranges([(1, 2)]))
    expect("missing", _of(report, Class.MISSING), Ranges([(3, 4)]))
    expect("waiting", _of(report, Class.WAITING), Ranges([(5, 6)]))
    (file,) = gap_files(report)
    expect("the gap file", file.gaps, (ExportGap(ORDERS, 3, 4),))
    (again,) = world.export(file.gaps)
    expect("the bundle that is written again", again.entry.bundle_id, lost.entry.bundle_id)
    expect("outcomes", states(world.bring(world.carry(again))), ["imported", "imported"])
    after = _report(world)
    expect("whole, and imported", (after.is_whole, _of(after, Class.IMPORTED)),
           (True, Ranges([(1, 6)])))  # fmt: skip


def claims(world: BridgeWorld) -> None:
    """J1 to J3, AGB0 4.3, K2, and K1 with the audit log of the exporter, which is exported too."""
    _bring_all(world)
    world.checkpoint()
    world.bring(world.carry(*world.export()))
    claims_ = {claim.name: claim for claim in _claims(world)}
    untrue = {name: item.document() for name, item in claims_.items() if not item.holds}
    expect("claims that do not hold", untrue, {})
    expect("claims", list(claims_), ["J1", "J2", "J3", "AGB0-4.3", "K1", "K2"])
    expect("events that are traced", claims_["K1"].witness["traced"], len(world.recorded))
    expect("keys in both zones", claims_["J3"].witness["keys"]["in_both"], 0)
    regions = {item["stream"]: item["to_seq"] for item in claims_["K2"].witness["regions"]}
    expect("the closed region", regions[ORDERS], len(world.recorded))


def claims_broken(world: BridgeWorld) -> None:
    """Identities that act without permission: each claim detects and names it."""
    _bring_all(world)
    world.record(BUNDLE_EVENTS)
    unbrought = _carried_log(world)
    world.smuggle([event.encode() for event in world.imported()[:BUNDLE_EVENTS]])
    world.smuggle([world.by_hand(len(world.recorded) - 1, unbrought).encode()])
    world.claim(_success_of_nothing(world), _equivocation(world))
    claims_ = {claim.name: claim for claim in _claims(world)}
    for name, what, detail in (
        ("J1", "a bundle that stands twice", "stands twice"),
        ("J2", "a success of what never came", "was not imported"),
        ("K1", "an event of no audited import", "no success of bundle"),
        ("K2", "a stream with two histories", "has two histories"),
    ):
        expect_that(not claims_[name].holds, f"{name} does not hold of {what}")
        expect_that(detail in str(claims_[name].counterexample), f"{name} names {what}")
    world.z1.grant(world.z2.keys["reader"], ORDERS)
    back = prove_directions(_actors(world.online, world.z1), _actors(world.offline, world.z2))
    due = (world.z2.keys["reader"].hex(), ORDERS)
    expect_that(not back.holds, "J3 does not hold of a key of Z2 that may write in Z1")
    expect_that(all(item in str(back.counterexample) for item in due), "J3 names key and stream")


def _carried_log(world: BridgeWorld) -> bytes:
    """Import the audit log of the exporter without the bundle of orders that it lists last."""
    exported = world.export()
    world.checkpoint()
    exported += world.export()
    orders = [item for item in exported if item.entry.stream == ORDERS]
    world.bring(world.carry(*(item for item in exported if item not in orders)))
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
        detail="two histories",
    )


def _bring_all(world: BridgeWorld) -> None:
    world.record(3)
    expect("outcomes", states(world.bring(world.carry(*world.export()))), ["imported"] * 2)


def _report(world: BridgeWorld) -> ReconcileReport:
    return reconciled(world.collected().facts)


def _of(report: ReconcileReport, class_: Class) -> Ranges:
    return next(stream.classes[class_] for stream in report.streams if stream.stream == ORDERS)


def _claims(world: BridgeWorld) -> list[BridgeClaim]:
    evidence = ProofEvidence(world.trust.hubs)
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


def _actors(settings: BridgeSettings, side: BridgeSide) -> ZoneActors:
    granted = read_granted(side.hub.datadir.root, side.identity.hub_id)
    return zone_actors(settings, side.hub.settings, granted)


CLAIM_STEPS: Final = (
    SelftestStep("reconcile", reconcile),
    SelftestStep("claims", claims),
    SelftestStep("claims-broken", claims_broken),
    *QUERY_STEPS,
)
