"""The report of a reconciliation: the same facts, the same bytes (AGB0 4.7).

What should never be: ledgers that fork, numbers that repeat, streams with two histories.

One stream reconciled: every exported event in exactly one class (AGB0 4.7, K2).

A report with the signature of whoever made it, for files, audits and anchors (AGB0 6.3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from bridge.reconcile.facts import (
    BundleFact,
    BundleState,
    CheckpointFact,
    Export,
    ForeignFact,
    ForkFact,
    Import,
    ImportedFact,
    LedgerFact,
    Repeat,
)
from bridge.reconcile.ranges import FactRun, Ranges, repeated
from veen.crypto import SigningKey, signature_is_valid
from veen.digest import ht
from veen.errors import Malformed, Untrusted
from veen.wire import canonical_json
from veen.wire.canonical_json import parse_json


class RootClaim(NamedTuple):
    """Somebody's word that a stream had a root at a place."""

    hub_id: bytes
    stream: str
    seq: int
    root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReport:
    """``unknown`` are entries below ``newest`` that nothing tells of; ``repeated`` numbers stand
    for two entries, and ``forked`` ones do not follow the entry before them.
    """

    bridge_id: bytes
    newest: int
    unknown: Ranges
    repeated: tuple[int, ...]
    forked: tuple[int, ...]


def reconcile_ledger(bridge_id: bytes, entries: Iterable[LedgerFact]) -> LedgerReport:
    hashes: dict[int, set[bytes]] = defaultdict(set)
    before: dict[int, set[bytes]] = defaultdict(set)
    for entry in entries:
        hashes[entry.n].add(entry.entry_hash)
        before[entry.n].add(entry.prev)
    newest = max(hashes)
    # Beside a repeated number, one of two entries is not followed; that is told once, there.
    followed = (n for n in before if n - 1 in hashes)
    return LedgerReport(
        bridge_id=bridge_id,
        newest=newest,
        unknown=Ranges([(1, newest)]) - Ranges((n, n) for n in hashes),
        repeated=tuple(sorted(n for n, result in hashes.items() if len(result) > 1)),
        forked=tuple(sorted(n for n in followed if not before[n] <= hashes[n - 1])),
    )


def root_claims(
    exports: Iterable[Export], imports: Iterable[Import], sources: Iterable[CheckpointFact]
) -> Iterator[RootClaim]:
    yield from (
        RootClaim(export.hub_id, export.stream, export.last, export.root)
        for export in exports
        if export.root
    )
    yield from (
        RootClaim(import_.hub_id, import_.stream, import_.last, import_.root)
        for import_ in imports
        if import_.root
    )
    for source in sources:
        for end in source.ends:
            if end.last:
                yield RootClaim(source.hub_id, end.stream, end.last, end.root)


def contradictions(claims: Iterable[RootClaim]) -> list[ForkFact]:
    """Where two different roots are claimed for one place."""
    first: dict[tuple[bytes, str, int], bytes] = {}
    result = set()
    for claim in claims:
        if first.setdefault(claim[:3], claim.root) != claim.root:
            result.add(ForkFact(*claim[:3]))
    return sorted(result)


class Class(Enum):
    """What became of an exported event; the first that holds, in this order."""

    IMPORTED = "imported"
    EXCLUDED = "excluded"
    PARTIAL = "partial"
    WAITING = "waiting"
    QUARANTINED = "quarantined"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """All that is known of one stream. Of each bundle there is one standing, the newest."""

    hub_id: bytes
    stream: str
    target: str
    runs: Iterable[FactRun] = ()
    exports: Iterable[Export] = ()
    standings: Iterable[BundleFact] = ()
    forks: Iterable[ForkFact] = ()
    source: CheckpointFact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Every event from 1 to ``to_seq``, and every event of a hub time before ``before``, is
    accounted for on both sides of the gap (K2).
    """

    to_seq: int
    before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LostBundle:
    """A bundle of which events are in class ``state``, one that needs something to be done."""

    bundle_id: bytes
    first: int
    last: int
    state: Class
    events: int
    described_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """``classes`` are disjoint and together are ``exported``.

    ``duplicate`` events stand in an import stream more than once. ``unannounced`` ones were
    imported, and no ledger, audit or bundle tells of their export. ``unfulfilled`` ones were
    audited as imported, and are not there. ``untold`` are those up to ``horizon``, the last that
    anything tells of, of whose export nothing is known.
    """

    hub_id: bytes
    stream: str
    target: str
    horizon: int
    exported: Ranges
    classes: dict[Class, Ranges]
    duplicate: Ranges
    unannounced: Ranges
    unfulfilled: Ranges
    unreported: Ranges
    closed: Closed
    open: Ranges
    bundles: tuple[LostBundle, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to do for what was exported."""
        left = [self.classes[item] for item in Class if item not in _SETTLED]
        return not any([*left, self.duplicate, self.unfulfilled])


_SETTLED = (Class.IMPORTED, Class.EXCLUDED)
_OF_HELD = {
    ImportedFact.IMPORTED: Class.IMPORTED,
    ImportedFact.EXCLUDED: Class.EXCLUDED,
    ImportedFact.UNSEEN: Class.PARTIAL,
}
_OF_STATE = {
    BundleState.PARTIAL: Class.PARTIAL,
    BundleState.WAITING: Class.WAITING,
    BundleState.QUARANTINED: Class.QUARANTINED,
}


def reconcile_stream(facts: StreamFacts) -> StreamReport:
    runs, exports = list(facts.runs), list(facts.exports)
    standings = [standing for standing in facts.standings if standing.first]
    announced = Ranges((export.first, export.last) for export in exports)
    claims = _claims(runs, standings)
    claims[Class.MISSING] |= announced
    exported, classes = Ranges(), {}
    for item in Class:
        classes[item] = claims[item] - exported
        exported |= claims[item]
    settled = classes[Class.IMPORTED] | classes[Class.EXCLUDED]
    audited = Ranges(
        (standing.first, standing.last)
        for standing in standings
        if standing.state is BundleState.IMPORTED
    )
    end = _source_end(facts)
    horizon = max(exported.end, end or 0)
    closed = _closed(facts, runs, end)
    whole = Ranges([(1, horizon)] if horizon else ())
    return StreamReport(
        hub_id=facts.hub_id,
        stream=facts.stream,
        target=facts.target,
        horizon=horizon,
        exported=exported,
        classes=classes,
        duplicate=repeated(
            (run.first, run.last) for run in runs if run.held is not ImportedFact.UNSEEN
        ),
        unannounced=settled - announced,
        unfulfilled=audited - settled,
        unreported=whole - exported,
        closed=closed,
        open=whole - Ranges([(1, closed.to_seq)] if closed.to_seq else ()),
        bundles=tuple(_lost(exports, _states(runs, standings), standings, classes)),
    )


def _claims(runs: Iterable[FactRun], standings: Iterable[BundleFact]) -> dict[Class, Ranges]:
    """What each class lays claim to; claims overlap. An audited success is an export, no more."""
    spans: dict[Class, list[tuple[int, int]]] = defaultdict(list)
    for run in runs:
        spans[_OF_HELD[run.held]].append((run.first, run.last))
    for standing in standings:
        spans[_OF_STATE.get(standing.state, Class.MISSING)].append((standing.first, standing.last))
    return {item: Ranges(spans[item]) for item in Class}


def _source_end(facts: StreamFacts) -> int | None:
    """Where C1 ends the stream; None without C1. One that it does not know was empty then."""
    if facts.source is None:
        return None
    end = facts.source.end(facts.stream)
    return end.last if end else 0


def _closed(facts: StreamFacts, runs: Iterable[FactRun], end: int | None) -> Closed:
    """From the beginning on, up to C1 and as far as C2 covers; never into a fork."""
    settled = [run for run in runs if run.is_settled and run.held is not ImportedFact.UNSEEN]
    forked = min((fork.seq for fork in facts.forks), default=None)
    reached = Ranges((item.first, item.last) for item in settled).prefix()
    to_seq = min(item for item in (reached, end, forked and forked - 1) if item is not None)
    if facts.source is not None and to_seq == end:
        return Closed(to_seq=to_seq, before=facts.source.created_at)
    # The next event can be of the same second; hub time never goes back within a stream.
    times = [item.time_last for item in settled if item.last == to_seq]
    before = max(times, default=_no_later(settled, to_seq))
    return Closed(to_seq=to_seq, before=before)


def _no_later(settled: Iterable[FactRun], to_seq: int) -> int:
    """A time that is not after that of ``to_seq``, where no run ends there."""
    return max((run.time_last for run in settled if run.last < to_seq), default=0)


def _states(runs: Iterable[FactRun], standings: Iterable[BundleFact]) -> dict[bytes, Class]:
    result = {run.bundle_id: Class.PARTIAL for run in runs if run.held is ImportedFact.UNSEEN}
    result |= {
        standing.bundle_id: _OF_STATE.get(standing.state, Class.MISSING) for standing in standings
    }
    return result


def _lost(
    exports: Iterable[Export],
    states: dict[bytes, Class],
    standings: Iterable[BundleFact],
    classes: dict[Class, Ranges],
) -> list[LostBundle]:
    detail: dict[tuple[bytes, int, int], set[str]] = defaultdict(set)
    for export in exports:
        detail[export.bundle_id, export.first, export.last].add(export.described_by)
    for standing in standings:
        detail[standing.bundle_id, standing.first, standing.last].add("import audit")
    result = []
    for (bundle_id, first, last), by in detail.items():
        state = states.get(bundle_id, Class.MISSING)
        events = classes[state].within(first, last).count
        if events:
            result.append(
                LostBundle(
                    bundle_id=bundle_id,
                    first=first,
                    last=last,
                    state=state,
                    events=events,
                    described_by=tuple(sorted(by)),
                )
            )
    return sorted(result, key=lambda item: (item.first, item.last, item.bundle_id))


VERSION: Final = 1
KIND: Final = "bridge.reconciled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileReport:
    """Streams by hub and name, ledgers by bridge. ``unplaced`` bundles were refused before it was
    known what is in them, and no ledger or audit tells it either.
    """

    streams: tuple[StreamReport, ...]
    ledgers: tuple[LedgerReport, ...]
    forks: tuple[ForkFact, ...]
    repeats: tuple[tuple[bytes, int], ...]
    unplaced: tuple[bytes, ...]
    strangers: tuple[ForeignFact, ...]
    sources: tuple[CheckpointFact, ...]
    target: CheckpointFact | None

    @property
    def closed_before(self) -> int:
        """Before this hub time, every stream is accounted for (K2)."""
        return min((stream.closed.before for stream in self.streams), default=0)

    @property
    def has_alarms(self) -> bool:
        odd = [ledger for ledger in self.ledgers if ledger.repeated or ledger.forked]
        lies = [stream for stream in self.streams if stream.unfulfilled or stream.duplicate]
        return bool(self.forks or odd or lies or self.strangers)

    @property
    def is_whole(self) -> bool:
        """Whether everything that is known to have been exported is here, and nothing is odd."""
        return not self.has_alarms and not self.unplaced and all(
            stream.is_whole for stream in self.streams
        ) and not any(ledger.unknown for ledger in self.ledgers)  # fmt: skip

    def count(self, class_: Class) -> int:
        return sum(stream.classes[class_].count for stream in self.streams)

    def document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "kind": KIND,
            "whole": self.is_whole,
            "closed_before": self.closed_before,
            "events": {item.value: self.count(item) for item in Class},
            "checkpoints": {
                "sources": [_checkpoint(source) for source in self.sources],
                "target": _checkpoint(self.target) if self.target else None,
            },
            "streams": [_stream(stream) for stream in self.streams],
            "ledgers": [_ledger(ledger) for ledger in self.ledgers],
            "repeats": [
                {"bundle_id": bundle_id.hex(), "times": times} for bundle_id, times in self.repeats
            ],
            "unplaced": [item.hex() for item in self.unplaced],
            "alarms": _alarms(self),
        }

    def encode(self) -> bytes:
        return canonical_json.encode(self.document())

    def digest(self) -> bytes:
        """What is signed, recorded and anchored."""
        return digest_of(self.encode())


def digest_of(encoded: bytes) -> bytes:
    return ht("veen/bridge-report", encoded)


def count_repeats(repeats: Iterable[Repeat]) -> tuple[tuple[bytes, int], ...]:
    times: dict[bytes, int] = {}
    for repeat in set(repeats):
        times[repeat.bundle_id] = times.get(repeat.bundle_id, 0) + 1
    return tuple(sorted(times.items()))


def _checkpoint(fact: CheckpointFact) -> dict[str, Any]:
    return {
        "hub_id": fact.hub_id.hex(),
        "checkpoint_id": fact.checkpoint_id.hex(),
        "created_at": fact.created_at,
        "log_root": fact.log_root.hex(),
    }


def _set(ranges: Ranges) -> dict[str, Any]:
    return {"events": ranges.count, "ranges": [list(item) for item in ranges]}


def _stream(report: StreamReport) -> dict[str, Any]:
    return {
        "hub_id": report.hub_id.hex(),
        "stream": report.stream,
        "target": report.target,
        "horizon": report.horizon,
        "exported": _set(report.exported),
        "classes": {name.value: _set(result) for name, result in report.classes.items()},
        "duplicate": _set(report.duplicate),
        "unannounced": _set(report.unannounced),
        "unfulfilled": _set(report.unfulfilled),
        "untold": _set(report.unreported),
        "closed": {"to_seq": report.closed.to_seq, "before": report.closed.before},
        "open": _set(report.open),
        "bundles": [
            {
                "bundle_id": bundle.bundle_id.hex(),
                "from_seq": bundle.first,
                "to_seq": bundle.last,
                "state": bundle.state.value,
                "events": bundle.events,
                "told_by": list(bundle.described_by),
            }
            for bundle in report.bundles
        ],
    }


def _ledger(report: LedgerReport) -> dict[str, Any]:
    return {
        "bridge_id": report.bridge_id.hex(),
        "newest": report.newest,
        "unknown": [list(span) for span in report.unknown],
    }


def _alarms(report: ReconcileReport) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = [
        {
            "alarm": "equivocation",
            "hub_id": fork.hub_id.hex(),
            "stream": fork.stream,
            "seq": fork.seq,
        }
        for fork in report.forks
    ]
    for ledger in report.ledgers:
        bridge_id = ledger.bridge_id.hex()
        result += [
            {"alarm": alarm, "bridge_id": bridge_id, "n": n}
            for alarm, numbers in (
                ("ledger.repeated", ledger.repeated), ("ledger.forked", ledger.forked)
            )
            for n in numbers
        ]  # fmt: skip
    result += [
        {"alarm": "import.stranger", "target": stranger.target, "seq": stranger.seq}
        for stranger in report.strangers
    ]
    for stream in report.streams:
        result += [
            {
                "alarm": alarm,
                "hub_id": stream.hub_id.hex(),
                "stream": stream.stream,
                "from_seq": span.first,
                "to_seq": span.last,
            }
            for alarm, spans in (
                ("import.doubled", stream.duplicate), ("import.unfulfilled", stream.unfulfilled)
            )
            for span in spans
        ]  # fmt: skip
    return result


@dataclass(frozen=True, slots=True)
class SignedReconcileReport:
    """``report`` is the document; what is signed is the digest of its canonical form."""

    report: dict[str, Any]
    signer: bytes
    signature: bytes

    @classmethod
    def of(cls, report: ReconcileReport, key: SigningKey) -> SignedReconcileReport:
        return cls(report.document(), key.public, key.sign(report.digest()))

    def digest(self) -> bytes:
        return digest_of(canonical_json.encode(self.report))

    def encode(self) -> bytes:
        return canonical_json.encode(
            {
                "report": self.report,
                "signer": self.signer.hex(),
                "signature": self.signature.hex(),
            }
        )

    @classmethod
    def decode(cls, raw: bytes) -> SignedReconcileReport:
        value = parse_json(raw)
        try:
            report, signer, signature = value["report"], value["signer"], value["signature"]
            result = cls(report, bytes.fromhex(signer), bytes.fromhex(signature))
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"not a signed report: {error}") from error
        if type(report) is not dict or report.get("kind") != KIND or set(value) != _FIELDS:
            raise Malformed("not a report of veen bridge reconcile")
        if result.encode() != raw.removesuffix(b"\n"):
            raise Malformed("a report that is not in its canonical form")
        return result

    def verify(self, signer: bytes) -> None:
        """Refuse unless ``signer``, who is known from elsewhere, has signed all of it."""
        if self.signer != signer:
            raise Untrusted(f"the report is signed by {self.signer.hex()}")
        if not signature_is_valid(signer, self.signature, self.digest()):
            raise Untrusted("the report is not as it was signed")


_FIELDS = {"report", "signer", "signature"}
