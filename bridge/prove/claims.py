"""Proofs of the bridge's invariants J1 to J3, K1 and K2, each with its witness (AGB0 4.8, 5.2).

J3, nothing leads from Z2 to hub_online, is shown by enumerating everybody who can act: principals
and issuers in the settings of the hubs, identities of the bridge, and every capability that the
control log of a hub has ever accepted. K1 follows each imported event from its origin through both
audit logs to its place and to the zone's own record of its import.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from bridge.prove.evidence import BridgeClaim, OriginKey, ProofEvidence, VerifiedImport, spans
from bridge.prove.imports import Completed
from bridge.reconcile.facts import ImportedFact, LedgerFact
from bridge.reconcile.report import ReconcileReport, StreamReport
from bridge.stream_map import COMPLETED, IMPORTED, IMPORTS, OFFLINE_LOG, ONLINE_LOG
from veen.digest import Hasher
from veen.mmr import EMPTY, Peaks
from veen.wire import cbor

DIRECTIONS_SAYS = "no identity and no key leads from Z2 to a stream of hub_online"
EVERYTHING = "*"
TRACES_SAYS = (
    "each imported event is traced from its origin over both audits to its place and to the "
    "record of its import"
)


class ActorRole(Enum):
    """The role of an actor; ``BRIDGE`` and ``AUDIT`` are restricted further than the others."""

    BRIDGE = "bridge"
    AUDIT = "audit"
    READER = "reader"
    PRINCIPAL = "principal"
    SUBJECT = "subject"
    """Known from a capability only."""
    ISSUER = "issuer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Somebody who can act in a zone. ``secrets`` identify it: public keys, and hashes of tokens.
    ``reads`` and ``writes`` are patterns of streams; an issuer can let anybody write anything.
    """

    name: str
    part: ActorRole
    secrets: frozenset[bytes]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "part": self.part.value,
            "keys": sorted(secret.hex() for secret in self.secrets),
            "reads": list(self.reads),
            "writes": list(self.writes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneActors:
    """All actors of a zone, from the settings and from ``control_entries`` of its hub's control
    log, whose root is ``control_root``. ``exported`` are the streams that its bridge exports.
    """

    hub_id: bytes
    url: str
    is_gated: bool
    actors: tuple[Actor, ...]
    control_entries: int
    control_root: bytes
    exported: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "hub_id": self.hub_id.hex(),
            "gated": self.is_gated,
            "control_log": {"entries": self.control_entries, "root": self.control_root.hex()},
            "actors": [actor.document() for actor in self.actors],
        }


def prove_directions(online: ZoneActors, offline: ZoneActors) -> BridgeClaim:
    counterexample = next(_counterexamples(online, offline), None)
    witness = {
        "online": online.document(),
        "offline": offline.document(),
        "keys": {
            "online": len(_secrets(online)),
            "offline": len(_secrets(offline)),
            "in_both": len(_secrets(online) & _secrets(offline)),
        },
    }
    return BridgeClaim(
        name="J3", says=DIRECTIONS_SAYS, witness=witness, counterexample=counterexample
    )


def _counterexamples(online: ZoneActors, offline: ZoneActors) -> Iterator[str]:
    if online.hub_id == offline.hub_id or online.url == offline.url:
        yield f"both zones go to one hub, {online.hub_id.hex()} at {online.url}"
    if not online.is_gated:
        yield 'hub_online takes messages from anybody; set admission = "gated"'
    yield from _shared(online, offline)
    yield from _bound(online.actors, ActorRole.BRIDGE, "writes", ())
    yield from _bound(online.actors, ActorRole.AUDIT, "writes", (ONLINE_LOG,))
    yield from _bound(online.actors, ActorRole.AUDIT, "reads", ())
    yield from _bound(offline.actors, ActorRole.BRIDGE, "reads", ())
    yield from _bound(offline.actors, ActorRole.BRIDGE, "writes", (IMPORTED,))
    yield from _bound(offline.actors, ActorRole.AUDIT, "writes", (OFFLINE_LOG,))
    yield from _bound(offline.actors, ActorRole.AUDIT, "reads", ())
    for actor in online.actors:
        for pattern in actor.writes:
            if pattern.startswith((IMPORTED, OFFLINE_LOG)):
                yield f"{actor.name} may write {pattern} in hub_online, where Z2's events would go"


def _shared(online: ZoneActors, offline: ZoneActors) -> Iterator[str]:
    for here in offline.actors:
        for there in online.actors:
            common = here.secrets & there.secrets
            if common:
                also = f", which writes {list(there.writes)}" if there.writes else ""
                yield (
                    f"key {min(common).hex()} is {here.name} in Z2 and {there.name} in Z1{also}; "
                    "give each zone keys of its own"
                )


def _bound(
    actors: Iterable[Actor], role: ActorRole, verb: str, allowed: tuple[str, ...]
) -> Iterator[str]:
    for actor in actors:
        for pattern in getattr(actor, verb):
            if actor.part is role and not (allowed and pattern.startswith(allowed)):
                only = f"only {', '.join(allowed)}" if allowed else "nothing"
                yield f"{actor.name} {verb} {pattern}; the {role.value} of its zone {verb} {only}"


def _secrets(zone: ZoneActors) -> frozenset[bytes]:
    return frozenset().union(*(actor.secrets for actor in zone.actors))


def prove_origins(evidence: ProofEvidence) -> BridgeClaim:
    """J1: the mapping between imported events and origin receipts is one to one."""
    broken = next(_bad_origins(evidence), None)
    pairs = Hasher.tagged("veen/bridge-origins")
    for key in sorted(evidence.events):
        event = evidence.events[key]
        place = [*key, event.leaf, event.target, event.target_seq]
        pairs.update(cbor.dump(place))
    return BridgeClaim(
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


def prove_completeness(evidence: ProofEvidence) -> BridgeClaim:
    """J2: what was audited as imported is here, or its exclusion is logged."""
    broken = next(_incomplete(evidence), None)
    return BridgeClaim(
        name="J2",
        says="each bundle that was imported is complete, or says what was excluded",
        witness={
            "bundles": len(evidence.imports),
            "events": sum(success.count for _, success in evidence.imports.values()),
            "excluded": len(evidence.exclusions),
        },
        counterexample=broken,
    )


def prove_region(evidence: ProofEvidence, report: ReconcileReport) -> BridgeClaim:
    """K2: the closed region, with the events in it replayed to a root that the origin signed."""
    regions: list[dict[str, Any]] = []
    broken = None
    for stream in report.streams:
        root = _replayed(evidence, stream.hub_id, stream.stream, stream.closed.to_seq)
        if stream.closed.to_seq and {root} != _signed_roots(evidence, report, stream):
            broken = broken or f"{stream.stream}: 1 to {stream.closed.to_seq} lead to another root"
        regions.append(
            {
                "hub_id": stream.hub_id.hex(),
                "stream": stream.stream,
                "to_seq": stream.closed.to_seq,
                "before": stream.closed.before,
                "root": root.hex() if root else None,
                "open": [list(span) for span in stream.open],
            }
        )
    forks = f"{report.forks[0].stream} has two histories" if report.forks else None
    return BridgeClaim(
        name="K2",
        says="up to the closed region both zones provably hold the same; gaps beyond are named",
        witness={
            "closed_before": report.closed_before,
            "report": report.digest().hex(),
            "regions": regions,
        },
        counterexample=broken or forks,
    )


def _bad_origins(evidence: ProofEvidence) -> Iterator[str]:
    yield from evidence.faults
    for event in evidence.doubled:
        other = evidence.events[event.key]
        places = f"{other.target} {other.target_seq} and {event.target} {event.target_seq}"
        yield f"{event.key} stands twice: {places}"


def _incomplete(evidence: ProofEvidence) -> Iterator[str]:
    for bundle_id, (seq, success) in sorted(evidence.imports.items()):
        if success.count != success.to_seq - success.from_seq + 1:
            yield f"bridge/offline/log {seq}: {success.count} events from {success.from_seq} on"
        for n in range(success.from_seq, success.to_seq + 1):
            event = evidence.events.get(OriginKey(success.source_hub_id, success.stream, n))
            if event is None:
                yield f"bundle {bundle_id.hex()}: {success.stream} {n} was not imported"
            elif (
                event.held is ImportedFact.EXCLUDED
                and (event.bundle_id, n) not in evidence.exclusions
            ):
                yield (
                    f"bundle {bundle_id.hex()}: {success.stream} {n} was excluded without a record"
                )


def _replayed(evidence: ProofEvidence, hub_id: bytes, stream: str, to_seq: int) -> bytes | None:
    peaks: Peaks = EMPTY
    for n in range(1, to_seq + 1):
        event = evidence.events.get(OriginKey(hub_id, stream, n))
        if event is None:
            return None
        peaks = peaks.append(event.leaf)
    return peaks.root() if to_seq else None


def _signed_roots(
    evidence: ProofEvidence, report: ReconcileReport, stream: StreamReport
) -> set[bytes]:
    """The roots that the origin signed for the end of the region: in the receipt, and in C1 if it
    ends there too.
    """
    place = OriginKey(stream.hub_id, stream.stream, stream.closed.to_seq)
    roots = {evidence.events[place].root} if place in evidence.events else set()
    ends = [
        source.end(stream.stream) for source in report.sources if source.hub_id == stream.hub_id
    ]
    return roots | {end.root for end in ends if end and end.last == place.seq}


def _by_stream(evidence: ProofEvidence) -> dict[tuple[bytes, str], list[int]]:
    by_stream: dict[tuple[bytes, str], list[int]] = defaultdict(list)
    for key in evidence.events:
        by_stream[key.hub_id, key.stream].append(key.seq)
    return by_stream


Numbers = Mapping[bytes, list[LedgerFact]]
"""The entries of each bundle in the ledgers of exporters."""


class _TraceState(Enum):
    TRACED = "traced"
    OPEN = "open"
    """A log does not reach it yet."""
    NOT_COVERED = "not covered"
    """Nothing says how far a log must reach to include it."""
    BROKEN = "broken"


class _Trace(NamedTuple):
    state: _TraceState
    detail: str = ""


def prove_traces(evidence: ProofEvidence, entries: Iterable[LedgerFact]) -> BridgeClaim:
    """K1: every imported event is traced through both audit logs to its origin and its record.

    A log lags behind what it is about. An event that a log does not reach yet is listed as open:
    its import was begun and is not finished, or its number in the ledger of its bridge is beyond
    the newest in this bridge's log.
    """
    numbers: dict[bytes, list[LedgerFact]] = defaultdict(list)
    for entry in entries:
        numbers[entry.bundle_id].append(entry)
    traces = {
        key: _trace(evidence, numbers, event) for key, event in sorted(evidence.events.items())
    }
    traced = [key for key, trace in traces.items() if trace.state is _TraceState.TRACED]
    return BridgeClaim(
        name="K1",
        says=TRACES_SAYS,
        witness={
            "traced": len(traced),
            "open": _named(traces, _TraceState.OPEN),
            "not_covered": _named(traces, _TraceState.NOT_COVERED),
            "chain": chain(evidence, traced[0]) if traced else None,
        },
        counterexample=_first(traces, _TraceState.BROKEN),
        not_covered=_first(traces, _TraceState.NOT_COVERED),
    )


def chain(evidence: ProofEvidence, key: OriginKey) -> dict[str, Any]:
    """The chain of evidence of an event; a missing link is null."""
    event = evidence.events[key]
    exported = _export_of(evidence, event)
    imported = evidence.imports.get(event.bundle_id)
    completed = _completed_of(evidence, event)
    return {
        "origin": {
            "hub_id": key.hub_id.hex(),
            "stream": key.stream,
            "seq": key.seq,
            "hub_ts": event.hub_ts,
            "leaf_hash": event.leaf.hex(),
            "mmr_root": event.root.hex(),
        },
        "bundle": event.bundle_id.hex(),
        "online_audit": {"stream": ONLINE_LOG, "seq": exported} if exported else None,
        "offline_audit": {"stream": OFFLINE_LOG, "seq": imported[0]} if imported else None,
        "imported": {"stream": event.target, "seq": event.target_seq, "as": event.held.value},
        "recorded": {"stream": IMPORTS, "seq": completed.seq} if completed else None,
    }


def _trace(evidence: ProofEvidence, numbers: Numbers, event: VerifiedImport) -> _Trace:
    imported = evidence.imports.get(event.bundle_id)
    if imported is None:
        detail = f"no success of bundle {event.bundle_id.hex()} stands in {OFFLINE_LOG}"
        return _Trace(
            _TraceState.OPEN if _is_begun(evidence, event) else _TraceState.BROKEN, detail
        )
    if not imported[1].from_seq <= event.key.seq <= imported[1].to_seq:
        detail = f"{OFFLINE_LOG} {imported[0]} names other events"
        return _Trace(_TraceState.BROKEN, detail)
    if _completed_of(evidence, event) is None:
        return _unrecorded(evidence, event)
    if _export_of(evidence, event) is None:
        return _unexported(evidence, numbers.get(event.bundle_id, []), event)
    return _Trace(_TraceState.TRACED)


def _unexported(
    evidence: ProofEvidence, entries: list[LedgerFact], event: VerifiedImport
) -> _Trace:
    bundle = event.bundle_id.hex()
    if not entries:
        return _Trace(_TraceState.NOT_COVERED, f"no ledger of a carrier names bundle {bundle}")
    detail = f"no export of bundle {bundle} stands in {ONLINE_LOG}"
    is_ahead = any(entry.n > evidence.reached.get(entry.bridge_id, 0) for entry in entries)
    return _Trace(_TraceState.OPEN if is_ahead else _TraceState.BROKEN, detail)


def _unrecorded(evidence: ProofEvidence, event: VerifiedImport) -> _Trace:
    """The trace of an event whose import is not recorded.

    Records of the bundle at another place contradict it; without any record it cannot be judged.
    """
    bundle, (by_bundle, unread) = event.bundle_id.hex(), evidence.completed
    if unread is not None:
        return _Trace(_TraceState.NOT_COVERED, unread)
    if any(completed.placed is not None for completed in by_bundle.get(event.bundle_id, ())):
        places = ", ".join(str(completed.seq) for completed in by_bundle[event.bundle_id])
        detail = f"{IMPORTS} {places} has another range of bundle {bundle}"
        return _Trace(_TraceState.BROKEN, detail)
    detail = (
        f"no {COMPLETED} says where bundle {bundle} stands, in {IMPORTS}; an import records it "
    )
    return _Trace(_TraceState.NOT_COVERED, f"{detail}where [import_recorder] names an identity")


def _completed_of(evidence: ProofEvidence, event: VerifiedImport) -> Completed | None:
    for completed in evidence.completed.by_bundle.get(event.bundle_id, ()):
        if completed.covers(*event.key, event.target, event.target_seq):
            return completed
    return None


def _is_begun(evidence: ProofEvidence, event: VerifiedImport) -> bool:
    begun = evidence.begun.get(event.bundle_id)
    return begun is not None and begun.from_seq <= event.key.seq <= begun.to_seq


def _export_of(evidence: ProofEvidence, event: VerifiedImport) -> int | None:
    for seq, success in evidence.exports.get(event.bundle_id, ()):
        key = (success.source_hub_id, success.stream)
        if key == event.key[:2] and success.from_seq <= event.key.seq <= success.to_seq:
            return seq
    return None


def _first(traces: Mapping[OriginKey, _Trace], state: _TraceState) -> str | None:
    details = (f"{key}: {trace.detail}" for key, trace in traces.items() if trace.state is state)
    return next(details, None)


def _named(traces: Mapping[OriginKey, _Trace], state: _TraceState) -> dict[str, list[list[int]]]:
    by_stream: dict[str, list[int]] = defaultdict(list)
    for key, trace in traces.items():
        if trace.state is state:
            by_stream[f"{key.stream} of {key.hub_id.hex()}"].append(key.seq)
    return {name: spans(seqs) for name, seqs in by_stream.items()}
