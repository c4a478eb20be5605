"""J1, J2, K1 and K2, judged event by event, each with its witness (AGB0 4.8, 5.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.prove import Claim
from bridge.prove_evidence import Evidence, Known, OriginKey
from bridge.reconcile.facts import Held
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.report import Report
from bridge.reconcile.stream_report import StreamReport
from bridge.stream_map import ONLINE_LOG
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
                f"{stream} of {hub_id.hex()}": _spans(seqs)
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


def prove_traces(evidence: Evidence, ledger_numbers: Mapping[bytes, int]) -> Claim:
    """K1: every event here can be followed from its origin, over both audits, to its place.

    The exporter's log comes later than what it tells of. What its newest entry does not reach yet
    is open, and named.
    """
    newest = max((one.n for told in evidence.exports.values() for _, one in told), default=0)
    opened: dict[str, list[int]] = defaultdict(list)
    broken, traced = None, 0
    for key in sorted(evidence.events):
        one = evidence.events[key]
        fault = _untraced(evidence, one)
        if fault is None:
            traced += 1
        elif key.stream == ONLINE_LOG or ledger_numbers.get(one.bundle_id, newest + 1) > newest:
            opened[f"{key.stream} of {key.hub_id.hex()}"].append(key.seq)
        elif broken is None:
            broken = f"{key}: {fault}"
    sample = next((key for key in sorted(evidence.events) if _is_traced(evidence, key)), None)
    return Claim(
        name="K1",
        says="each imported event is traced from its origin over both audits to its place",
        witness={
            "traced": traced,
            "open": {name: _spans(seqs) for name, seqs in sorted(opened.items())},
            "chain": chain(evidence, sample) if sample else None,
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


def chain(evidence: Evidence, key: OriginKey) -> dict[str, Any]:
    """The way of one event, as far as it can be told: null where a link is not here."""
    one = evidence.events[key]
    exported = _export_of(evidence, one)
    imported = evidence.imports.get(one.bundle_id)
    return {
        "origin": {
            "hub_id": key.hub_id.hex(),
            "stream": key.stream,
            "seq": key.seq,
            "hub_ts": one.hub_ts,
            "leaf_hash": one.leaf.hex(),
            "mmr_root": one.root.hex(),
        },
        "bundle": one.bundle_id.hex(),
        "online_audit": {"stream": ONLINE_LOG, "seq": exported} if exported else None,
        "offline_audit": {"stream": "bridge/offline/log", "seq": imported[0]} if imported else None,
        "imported": {"stream": one.target, "seq": one.target_seq, "as": one.held.value},
    }


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


def _untraced(evidence: Evidence, one: Known) -> str | None:
    imported = evidence.imports.get(one.bundle_id)
    if imported is None:
        return f"no success of bundle {one.bundle_id.hex()} stands in bridge/offline/log"
    if not imported[1].from_seq <= one.key.seq <= imported[1].to_seq:
        return f"bridge/offline/log {imported[0]} tells of other events"
    if _export_of(evidence, one) is None:
        return f"no export of bundle {one.bundle_id.hex()} stands in {ONLINE_LOG}"
    return None


def _is_traced(evidence: Evidence, key: OriginKey) -> bool:
    return _untraced(evidence, evidence.events[key]) is None


def _export_of(evidence: Evidence, one: Known) -> int | None:
    for seq, told in evidence.exports.get(one.bundle_id, ()):
        key = (told.source_hub_id, told.stream)
        if key == one.key[:2] and told.from_seq <= one.key.seq <= told.to_seq:
            return seq
    return None


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


def _spans(seqs: list[int]) -> list[list[int]]:
    return [list(one) for one in Ranges((n, n) for n in seqs)]
