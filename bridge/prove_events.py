"""J1, J2 and K2, judged event by event, each with its witness (AGB0 4.8, 5.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from bridge.prove import Claim, spans
from bridge.prove_evidence import Evidence, OriginKey
from bridge.reconcile.facts import Held
from bridge.reconcile.report import Report
from bridge.reconcile.stream_report import StreamReport
from veen import cbor
from veen.digest import Hasher
from veen.mmr import EMPTY, Peaks


def prove_origins(evidence: Evidence) -> Claim:
    """J1: the mapping between imported events and origin receipts is one to one."""
    broken = next(_bad_origins(evidence), None)
    pairs = Hasher.tagged("veen/bridge-origins")
    for key in sorted(evidence.events):
        one = evidence.events[key]
        place = [*key, one.leaf, one.target, one.target_seq]
        pairs.update(cbor.dump(place))
    return Claim(
        name="J1",
        says="each imported event has exactly one origin receipt, and each way leads back",
        witness={
            "events": len(evidence.events),
            "mapping": pairs.digest().hex(),
            "streams": {
                f"{stream} of {hub_id.hex()}": spans(seqs)
                for (hub_id, stream), seqs in sorted(_by_stream(evidence).items())
            },
        },
        counterexample=broken,
    )


def prove_completeness(evidence: Evidence) -> Claim:
    """J2: what was audited as imported is here, or its exclusion is logged."""
    broken = next(_incomplete(evidence), None)
    return Claim(
        name="J2",
        says="each bundle that was imported is complete, or says what was kept out",
        witness={
            "bundles": len(evidence.imports),
            "events": sum(one.count for _, one in evidence.imports.values()),
            "excluded": len(evidence.exclusions),
        },
        counterexample=broken,
    )


def prove_region(evidence: Evidence, report: Report) -> Claim:
    """K2: the closed region, with the events in it replayed to a root that the origin signed."""
    regions: list[dict[str, Any]] = []
    broken = None
    for one in report.streams:
        root = _replayed(evidence, one.hub_id, one.stream, one.closed.to_seq)
        if one.closed.to_seq and {root} != _signed_roots(evidence, report, one):
            broken = broken or f"{one.stream}: 1 to {one.closed.to_seq} lead to another root"
        regions.append(
            {
                "hub_id": one.hub_id.hex(),
                "stream": one.stream,
                "to_seq": one.closed.to_seq,
                "before": one.closed.before,
                "root": root.hex() if root else None,
                "open": [list(span) for span in one.open],
            }
        )
    forks = f"{report.forks[0].stream} has two histories" if report.forks else None
    return Claim(
        name="K2",
        says="up to the closed region both zones provably hold the same; gaps beyond are named",
        witness={
            "closed_before": report.closed_before,
            "report": report.digest().hex(),
            "regions": regions,
        },
        counterexample=broken or forks,
    )


def _bad_origins(evidence: Evidence) -> Iterator[str]:
    yield from evidence.faults
    for one in evidence.doubled:
        other = evidence.events[one.key]
        places = f"{other.target} {other.target_seq} and {one.target} {one.target_seq}"
        yield f"{one.key} stands twice: {places}"


def _incomplete(evidence: Evidence) -> Iterator[str]:
    for bundle_id, (seq, told) in sorted(evidence.imports.items()):
        if told.count != told.to_seq - told.from_seq + 1:
            yield f"bridge/offline/log {seq}: {told.count} events from {told.from_seq} on"
        for n in range(told.from_seq, told.to_seq + 1):
            one = evidence.events.get(OriginKey(told.source_hub_id, told.stream, n))
            if one is None:
                yield f"bundle {bundle_id.hex()}: {told.stream} {n} was not imported"
            elif one.held is Held.EXCLUDED and (one.bundle_id, n) not in evidence.exclusions:
                yield f"bundle {bundle_id.hex()}: {told.stream} {n} was kept out without a record"


def _replayed(evidence: Evidence, hub_id: bytes, stream: str, to_seq: int) -> bytes | None:
    peaks: Peaks = EMPTY
    for n in range(1, to_seq + 1):
        one = evidence.events.get(OriginKey(hub_id, stream, n))
        if one is None:
            return None
        peaks = peaks.append(one.leaf)
    return peaks.root() if to_seq else None


def _signed_roots(evidence: Evidence, report: Report, one: StreamReport) -> set[bytes]:
    """What the origin has signed for the end of the region: in the receipt, and in C1 if it ends
    there too.
    """
    place = OriginKey(one.hub_id, one.stream, one.closed.to_seq)
    found = {evidence.events[place].root} if place in evidence.events else set()
    ends = [each.end(one.stream) for each in report.sources if each.hub_id == one.hub_id]
    return found | {end.root for end in ends if end and end.last == place.seq}


def _by_stream(evidence: Evidence) -> dict[tuple[bytes, str], list[int]]:
    found: dict[tuple[bytes, str], list[int]] = defaultdict(list)
    for key in evidence.events:
        found[key.hub_id, key.stream].append(key.seq)
    return found
