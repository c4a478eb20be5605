"""K1: an event is traced, or it is said what is missing; one bridge never speaks for another."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.audit_log import (
    ExportHeartbeat,
    ExportSuccess,
    ImportBegin,
    ImportSuccess,
    RecordedEntry,
)
from bridge.prove.claims import chain, prove_traces
from bridge.prove.evidence import OriginKey, ProofEvidence, VerifiedImport
from bridge.prove.imports import NONE_READ, Completed, Completions
from bridge.reconcile.facts import ImportedFact, LedgerFact
from support.bridge.reconcile_histories import named

STREAM, OTHER = "export/a", "export/b"


def bundle(bridge: str, n: int) -> bytes:
    return named("bundle", bridge, n)


def entry(bridge: str, n: int) -> LedgerFact:
    return LedgerFact(named(bridge), n, named("prev"), named("entry", bridge, n), bundle(bridge, n))


def about(bridge: str, n: int, hub: str, stream: str) -> dict[str, Any]:
    return {
        "operator": "test",
        "bundle_id": bundle(bridge, n),
        "sha256": named("bytes"),
        "source_hub_id": named(hub),
        "stream": stream,
        "from_seq": n,
        "to_seq": n,
        "count": 1,
    }


class Traces:
    """Evidence as it is heard; number n of a bridge's ledger holds event n of its stream."""

    def __init__(self, bridge: str, hub: str = "hub", stream: str = STREAM) -> None:
        self.place = (bridge, hub, stream)

    def is_here(self, evidence: ProofEvidence, n: int) -> None:
        bridge, hub, stream = self.place
        key = OriginKey(named(hub), stream, n)
        evidence.events[key] = VerifiedImport(
            key,
            ImportedFact.IMPORTED,
            named("l"),
            named("r"),
            1,
            bundle(bridge, n),
            f"import/{stream}",
            n,
        )

    def begun(self, evidence: ProofEvidence, n: int) -> None:
        bridge, hub, stream = self.place
        event = ImportBegin(**about(bridge, n, hub, stream), target=stream)
        evidence.offline(RecordedEntry(n, 1, event))

    def imported(self, evidence: ProofEvidence, n: int) -> None:
        bridge, hub, stream = self.place
        event = ImportSuccess(
            **about(bridge, n, hub, stream), target=stream, target_from=n, target_to=n, imported=1,
            duplicates=0, excluded=0, verification_result="valid",
        )  # fmt: skip
        evidence.offline(RecordedEntry(n, 1, event))

    def recorded(self, evidence: ProofEvidence, n: int, **other: Any) -> None:
        bridge, hub, stream = self.place
        completed = Completed(
            n, bundle(bridge, n), named(hub), stream, (n, n), f"import/{stream}", (n, n)
        )._replace(**other)
        known = dict(evidence.completed.by_bundle)
        known[completed.bundle_id] = [*known.get(completed.bundle_id, []), completed]
        evidence.completed = Completions(known)

    def exported(self, evidence: ProofEvidence, n: int) -> None:
        bridge, hub, stream = self.place
        event = ExportSuccess(
            **about(bridge, n, hub, stream), bridge_id=named(bridge), n=n,
            checkpoint_id=named("c"), checkpoint_at=1, root=named("r"), medium="m",
        )  # fmt: skip
        evidence.online(RecordedEntry(n, 1, event))

    def all_of(self, evidence: ProofEvidence, n: int) -> None:
        for step in (self.is_here, self.imported, self.recorded, self.exported):
            step(evidence, n)


A, B = Traces("bridge a"), Traces("bridge b", "hub b", OTHER)


@pytest.fixture
def evidence() -> ProofEvidence:
    return ProofEvidence({})


def test_an_event_of_no_audited_import_and_no_known_bundle_breaks_it(
    evidence: ProofEvidence,
) -> None:
    A.all_of(evidence, 1)
    A.is_here(evidence, 2)
    claim = prove_traces(evidence, [entry("bridge a", 1)])
    assert not claim.holds
    assert "export/a 2" in str(claim.counterexample)
    assert "no success of bundle" in str(claim.counterexample)


def test_what_is_audited_and_in_no_ledger_is_not_covered(evidence: ProofEvidence) -> None:
    A.is_here(evidence, 1)
    A.imported(evidence, 1)
    A.recorded(evidence, 1)
    claim = prove_traces(evidence, [])
    assert (claim.holds, claim.counterexample) == (False, None)
    assert "no ledger of a carrier names bundle" in str(claim.not_covered)
    assert list(claim.witness["not_covered"].values()) == [[[1, 1]]]


def test_an_import_that_is_not_closed_is_open_and_named(evidence: ProofEvidence) -> None:
    A.is_here(evidence, 1)
    A.begun(evidence, 1)
    claim = prove_traces(evidence, [entry("bridge a", 1)])
    assert claim.holds
    assert claim.witness["open"] == {f"{STREAM} of {named('hub').hex()}": [[1, 1]]}
    A.is_here(evidence, 2)
    assert not prove_traces(evidence, [entry("bridge a", 1)]).holds


def test_a_bridge_is_not_measured_by_how_far_another_has_come(evidence: ProofEvidence) -> None:
    """Two source hubs: the log of the second is still on its way."""
    for n in (499, 500):
        A.all_of(evidence, n)
    for n in (3, 4):
        B.is_here(evidence, n)
        B.imported(evidence, n)
        B.recorded(evidence, n)
    B.exported(evidence, 3)
    entries = [*(entry("bridge a", n) for n in (499, 500)), *(entry("bridge b", n) for n in (3, 4))]
    claim = prove_traces(evidence, entries)
    assert claim.holds, claim.counterexample
    assert claim.witness["traced"] == 3
    assert claim.witness["open"] == {f"{OTHER} of {named('hub b').hex()}": [[4, 4]]}


def test_a_new_identity_of_a_bridge_begins_its_own_count(evidence: ProofEvidence) -> None:
    renewed = Traces("bridge a, renewed")
    A.all_of(evidence, 500)
    renewed.is_here(evidence, 1)
    renewed.imported(evidence, 1)
    renewed.recorded(evidence, 1)
    entries = [entry("bridge a", 500), entry("bridge a, renewed", 1)]
    assert prove_traces(evidence, entries).holds
    renewed.exported(evidence, 2)
    assert "no export of bundle" in str(prove_traces(evidence, entries).counterexample)


def test_what_a_log_has_passed_over_breaks_it(evidence: ProofEvidence) -> None:
    A.is_here(evidence, 2)
    A.imported(evidence, 2)
    A.recorded(evidence, 2)
    entries = [entry("bridge a", n) for n in (1, 2, 3)]
    A.exported(evidence, 1)
    assert prove_traces(evidence, entries).holds
    beat = ExportHeartbeat(
        operator="test", bridge_id=named("bridge a"), n=3, source_hub_id=named("hub"),
        checkpoint_id=named("c"), checkpoint_at=1, medium="m",
    )  # fmt: skip
    evidence.online(RecordedEntry(9, 1, beat))
    claim = prove_traces(evidence, entries)
    assert "export/a 2" in str(claim.counterexample)
    assert chain(evidence, min(evidence.events))["online_audit"] is None


def test_h24_an_import_that_the_zone_did_not_record_is_not_covered(evidence: ProofEvidence) -> None:
    """K1's last link: without its event the import is not proven, whatever the audits say."""
    for step in (A.is_here, A.imported, A.exported):
        step(evidence, 1)
    evidence.completed = Completions({})
    claim = prove_traces(evidence, [entry("bridge a", 1)])
    assert (claim.holds, claim.counterexample) == (False, None)
    assert "import.completed" in str(claim.not_covered)
    assert "record/infrastructure/imports" in str(claim.not_covered)
    assert chain(evidence, min(evidence.events))["recorded"] is None
    A.recorded(evidence, 1)
    claim = prove_traces(evidence, [entry("bridge a", 1)])
    assert (claim.holds, claim.witness["traced"]) == (True, 1)
    place = {"stream": "record/infrastructure/imports", "seq": 1}
    assert chain(evidence, min(evidence.events))["recorded"] == place


def test_h24_a_stream_of_imports_that_was_not_read_proves_nothing(evidence: ProofEvidence) -> None:
    A.all_of(evidence, 1)
    evidence.completed = NONE_READ
    claim = prove_traces(evidence, [entry("bridge a", 1)])
    assert (claim.holds, claim.counterexample) == (False, None)
    assert "was not read" in str(claim.not_covered)


@pytest.mark.parametrize(
    "other",
    [
        {"placed": (2, 9)}, {"source": (2, 9)}, {"target": "import/x"}, {"stream": OTHER},
        {"hub_id": named("hub b")},
    ],
    ids=lambda item: next(iter(item)),
)  # fmt: skip
def test_h24_a_record_that_tells_otherwise_breaks_it(
    evidence: ProofEvidence, other: dict[str, object]
) -> None:
    for step in (A.is_here, A.imported, A.exported):
        step(evidence, 1)
    A.recorded(evidence, 1, **other)
    claim = prove_traces(evidence, [entry("bridge a", 1)])
    assert "has another range of bundle" in str(claim.counterexample)


def test_h24_a_record_without_a_place_is_no_link(evidence: ProofEvidence) -> None:
    for step in (A.is_here, A.imported, A.exported):
        step(evidence, 1)
    A.recorded(evidence, 1, placed=None)
    claim = prove_traces(evidence, [entry("bridge a", 1)])
    assert (claim.holds, claim.counterexample) == (False, None)
