"""The rows of the failure matrix that speak of reconciliation, each by its name."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from bridge.carrier.format import CarrierLedger, CarrierLedgerEntry
from bridge.reconcile.collect import of_ledger
from bridge.reconcile.facts import (
    BundleFact,
    BundleState,
    CheckpointFact,
    End,
    Export,
    ForeignFact,
    ForkFact,
    Import,
    ImportedFact,
    LedgerFact,
    ReconcileFacts,
    Repeat,
    fact_lines,
    read_facts,
)
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.report import Class, ReconcileReport, StreamReport
from support.bridge.reconcile_histories import named
from veen.errors import Malformed

HUB, STREAM, TARGET = named("hub"), "export/plant", "import/plant"
BUNDLES = {n: (10 * n - 9, 10 * n) for n in range(1, 6)}


def bundle_id(n: int) -> bytes:
    return named("bundle", n)


def export(n: int) -> Export:
    return Export(HUB, STREAM, *BUNDLES[n], bundle_id(n), "ledger")


def imported(n: int, held: ImportedFact = ImportedFact.IMPORTED, copy: int = 0) -> Import:
    first, last = BUNDLES[n]
    place = first + 1000 * copy
    return Import(
        HUB, STREAM, first, last, bundle_id(n), held, TARGET, place, 100 * first, 100 * last
    )


def bundle_fact(n: int, state: BundleState, at: int = 1) -> BundleFact:
    return BundleFact(bundle_id(n), at, state, HUB, STREAM, *BUNDLES[n])


def only(report: ReconcileReport) -> StreamReport:
    (result,) = report.streams
    return result


def a_ledger(count: int) -> CarrierLedger:
    """As the exporter writes it; here no bundle is needed for its entries."""
    entries: list[CarrierLedgerEntry] = []
    for n in range(1, count + 1):
        entries.append(
            CarrierLedgerEntry(
                n=n,
                prev=entries[-1].entry_hash() if entries else bytes(32),
                bundle_id=bundle_id(n),
                hub_id=HUB,
                stream=STREAM,
                from_seq=BUNDLES[n][0],
                to_seq=BUNDLES[n][1],
                checkpoint_id=named("checkpoint"),
                created_at=1,
            )
        )
    return CarrierLedger(bridge_id=named("bridge"), tail=tuple(entries))


def described_by(ledgers: Iterable[CarrierLedger], **more: object) -> ReconcileFacts:
    facts = [item for ledger in ledgers for item in of_ledger(ledger)]
    exports = [fact for fact in facts if isinstance(fact, Export)]
    entries = [fact for fact in facts if isinstance(fact, LedgerFact)]
    return ReconcileFacts(exports=exports, entries=entries, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("lost", [1, 3])
def test_r1_a_lost_first_or_middle_bundle_is_named_by_the_next_carrier(lost: int) -> None:
    arrived = [n for n in range(1, 6) if n != lost]
    facts = described_by([a_ledger(n) for n in arrived], imports=[imported(n) for n in arrived])
    result = only(reconcile(facts))
    assert result.classes[Class.MISSING] == Ranges([BUNDLES[lost]])
    assert [(bundle.bundle_id, bundle.described_by) for bundle in result.bundles] == [
        (bundle_id(lost), ("ledger",))
    ]


def test_r1_a_lost_last_bundle_shows_only_with_the_next_ledger_or_heartbeat() -> None:
    imports = [imported(n) for n in range(1, 5)]
    silent = reconcile(described_by([a_ledger(4)], imports=imports))
    assert silent.is_whole
    heartbeat = CarrierLedgerEntry(
        n=6, prev=a_ledger(5).tail[-1].entry_hash(), bundle_id=None, hub_id=HUB, stream="",
        from_seq=0, to_seq=0, checkpoint_id=named("checkpoint"), created_at=2,
    )  # fmt: skip
    beaten = CarrierLedger(bridge_id=named("bridge"), tail=(*a_ledger(5).tail, heartbeat))
    detail = reconcile(described_by([a_ledger(4), beaten], imports=imports))
    assert only(detail).classes[Class.MISSING] == Ranges([BUNDLES[5]])
    assert detail.ledgers[0].newest == 6


def test_r2_each_event_is_in_exactly_one_class() -> None:
    facts = ReconcileFacts(
        exports=[export(n) for n in BUNDLES],
        imports=[imported(1), imported(2, ImportedFact.EXCLUDED), imported(1, copy=1)],
        bundle_facts=[
            bundle_fact(3, BundleState.WAITING),
            bundle_fact(4, BundleState.WAITING, at=1),
            bundle_fact(4, BundleState.QUARANTINED, at=2),
            bundle_fact(5, BundleState.PARTIAL),
        ],
        repeats=[Repeat(bundle_id(1), 1), Repeat(bundle_id(1), 2)],
    )
    report = reconcile(facts)
    result = only(report)
    due = {Class.IMPORTED: 1, Class.EXCLUDED: 2, Class.WAITING: 3, Class.QUARANTINED: 4}
    due[Class.PARTIAL] = 5
    for kind, n in due.items():
        assert result.classes[kind] == Ranges([BUNDLES[n]])
    assert not result.classes[Class.MISSING]
    assert sum(kind.count for kind in result.classes.values()) == result.exported.count == 50
    assert result.duplicate == Ranges([BUNDLES[1]])
    assert report.repeats == ((bundle_id(1), 2),)


@pytest.mark.parametrize(
    ("c1", "to_seq", "before", "open_to"),
    [
        pytest.param(15, 15, 9_000, 30, id="older than what was imported"),
        pytest.param(30, 30, 9_000, None, id="as old"),
        pytest.param(40, 30, 3_000, 40, id="newer"),
    ],
)
def test_r3_a_closed_region_and_an_open_tail(
    c1: int, to_seq: int, before: int, open_to: int | None
) -> None:
    source = CheckpointFact(HUB, named("c1"), 9_000, named("log"), (End(STREAM, c1, named(c1)),))
    imports = [imported(n) for n in (1, 2, 3)]
    facts = ReconcileFacts(
        exports=[export(n) for n in (1, 2, 3)], imports=imports, sources=(source,)
    )
    result = only(reconcile(facts))
    assert (result.closed.to_seq, result.closed.before) == (to_seq, before)
    assert result.open == Ranges([(to_seq + 1, open_to)] if open_to else ())


def test_r3_c1_is_chosen_where_facts_bring_more_than_one() -> None:
    old, new = (
        CheckpointFact(HUB, named("c1", at), at, named("log"), (End(STREAM, last, named(last)),))
        for at, last in ((9_000, 15), (9_900, 30))
    )
    facts = ReconcileFacts(
        exports=[export(n) for n in (1, 2, 3)], imports=[imported(n) for n in (1, 2, 3)]
    )
    lines = [line for item in (old, new) for line in fact_lines(replace(facts, sources=(item,)))]
    with pytest.raises(Malformed, match="expected one checkpoint of each hub"):
        read_facts(lines)
    for source, to_seq in ((old, 15), (new, 30)):
        report = reconcile(read_facts(lines, [source.checkpoint_id]))
        assert report.sources == (source,)
        assert only(report).closed.to_seq == to_seq
    with pytest.raises(Malformed, match="no fact of checkpoint"):
        read_facts(lines, [named("another")])


def test_r3_what_c2_does_not_cover_is_not_closed() -> None:
    target = CheckpointFact(
        named("hub 2"), named("c2"), 1, named("l"), (End(TARGET, 15, named(2)),)
    )
    facts = ReconcileFacts(
        exports=[export(1), export(2)], imports=[imported(1), imported(2)], target=target
    )
    result = only(reconcile(facts))
    assert result.classes[Class.IMPORTED] == Ranges([(1, 20)])
    # Of a run that is cut only the time of its first event is known.
    assert (result.closed.to_seq, result.closed.before) == (15, 1_100)


def test_r4_a_ledger_that_forks_is_an_alarm() -> None:
    honest = list(of_ledger(a_ledger(3)))
    forged = LedgerFact(named("bridge"), 3, named("other past"), named("entry"), bundle_id(4))
    entries = [item for item in honest if isinstance(item, LedgerFact)]
    report = reconcile(ReconcileFacts(entries=[*entries, forged]))
    assert (report.ledgers[0].repeated, report.ledgers[0].forked) == ((3,), (3,))
    assert [item["alarm"] for item in report.document()["alarms"]] == [
        "ledger.repeated",
        "ledger.forked",
    ]
    assert not report.is_whole


def test_r4_a_number_that_is_used_twice_is_an_alarm() -> None:
    entries = [item for item in of_ledger(a_ledger(2)) if isinstance(item, LedgerFact)]
    twin = entries[1]._replace(entry_hash=named("twin"), bundle_id=bundle_id(5))
    report = reconcile(ReconcileFacts(entries=[*entries, twin]))
    assert (report.ledgers[0].repeated, report.ledgers[0].forked) == ((2,), ())
    assert report.has_alarms


def test_r4_two_roots_at_one_place_close_nothing_behind_it() -> None:
    facts = ReconcileFacts(
        exports=[export(1), export(2)._replace(root=named("told")), export(3)],
        imports=[imported(1), imported(2)._replace(root=named("signed")), imported(3)],
    )
    report = reconcile(facts)
    assert report.forks == (ForkFact(HUB, STREAM, 20),)
    assert only(report).closed.to_seq == 19


def test_facts_in_the_words_of_an_earlier_version_are_read() -> None:
    facts = ReconcileFacts(
        bundle_facts=[bundle_fact(3, BundleState.WAITING)], foreign=[ForeignFact(TARGET, 7)]
    )
    earlier = {b'["bundle"': b'["standing"', b'["foreign"': b'["stranger"'}
    lines = list(fact_lines(facts))
    old = [line.replace(*pair) for line, pair in zip(lines, earlier.items(), strict=True)]
    assert old != lines
    assert list(fact_lines(read_facts(old))) == lines
