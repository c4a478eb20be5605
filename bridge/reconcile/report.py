"""The report of a reconciliation and its signed form; deterministic (AGB0 4.7, 6.3).

Every exported event of a stream is in exactly one class (K2). Alarms are what must never be:
ledgers that fork, numbers that repeat, streams with two histories.
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
from veen.errors import LATER_RELEASE, Malformed, Untrusted, WrongVersion
from veen.wire import canonical_json
from veen.wire.canonical_json import parse_json

VERSION: Final = 1
KIND: Final = "bridge.reconciled"
_FIELDS = {"report", "signer", "signature"}


class RootClaim(NamedTuple):
    """A claim that a stream had a root at a sequence number."""

    hub_id: bytes
    stream: str
    seq: int
    root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReport:
    """The ledger of a bridge. ``unknown`` are entries below ``newest`` without any fact;
    ``repeated`` numbers stand for two entries, and ``forked`` do not follow the previous entry.
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
    # The entry after a repeated number follows only one of the two: reported once, as repeated.
    followed = (n for n in before if n - 1 in hashes)
    return LedgerReport(
        bridge_id=bridge_id,
        newest=newest,
        unknown=Ranges([(1, newest)]) - Ranges((n, n) for n in hashes),
        repeated=tuple(sorted(n for n, entry_hashes in hashes.items() if len(entry_hashes) > 1)),
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
    """Places with two different claimed roots."""
    first: dict[tuple[bytes, str, int], bytes] = {}
    forks = set()
    for claim in claims:
        if first.setdefault(claim[:3], claim.root) != claim.root:
            forks.add(ForkFact(*claim[:3]))
    return sorted(forks)


class Class(Enum):
    """The class of an exported event; the first that applies, in this order."""

    IMPORTED = "imported"
    EXCLUDED = "excluded"
    PARTIAL = "partial"
    WAITING = "waiting"
    QUARANTINED = "quarantined"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """The facts of one stream, with only the newest fact of each bundle."""

    hub_id: bytes
    stream: str
    target: str
    runs: Iterable[FactRun] = ()
    exports: Iterable[Export] = ()
    bundle_facts: Iterable[BundleFact] = ()
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
    """A bundle with events in class ``state``, which needs action."""

    bundle_id: bytes
    first: int
    last: int
    state: Class
    events: int
    described_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """The report of one stream. ``classes`` are disjoint and their union is ``exported``.

    ``duplicate`` events are in an import stream more than once. ``unannounced`` events were
    imported without a ledger, audit or bundle about their export. ``unfulfilled`` events were
    audited as imported and are absent. ``unreported`` are events up to ``horizon``, the last in any
    fact, of whose export nothing is known.
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
        """Whether no exported event needs action."""
        left = [self.classes[class_] for class_ in Class if class_ not in _SETTLED]
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
    bundle_facts = [fact for fact in facts.bundle_facts if fact.first]
    announced = Ranges((export.first, export.last) for export in exports)
    claims = _claims(runs, bundle_facts)
    claims[Class.MISSING] |= announced
    exported, classes = Ranges(), {}
    for class_ in Class:
        classes[class_] = claims[class_] - exported
        exported |= claims[class_]
    settled = classes[Class.IMPORTED] | classes[Class.EXCLUDED]
    audited = Ranges(
        (fact.first, fact.last) for fact in bundle_facts if fact.state is BundleState.IMPORTED
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
        bundles=tuple(_lost(exports, _states(runs, bundle_facts), bundle_facts, classes)),
    )


def _claims(runs: Iterable[FactRun], bundle_facts: Iterable[BundleFact]) -> dict[Class, Ranges]:
    """The events of each class before ranking, which overlap. An audited success counts as an
    export only.
    """
    spans: dict[Class, list[tuple[int, int]]] = defaultdict(list)
    for run in runs:
        spans[_OF_HELD[run.held]].append((run.first, run.last))
    for fact in bundle_facts:
        spans[_OF_STATE.get(fact.state, Class.MISSING)].append((fact.first, fact.last))
    return {class_: Ranges(spans[class_]) for class_ in Class}


def _source_end(facts: StreamFacts) -> int | None:
    """The end of the stream in C1; None without C1, 0 if C1 does not have the stream."""
    if facts.source is None:
        return None
    end = facts.source.end(facts.stream)
    return end.last if end else 0


def _closed(facts: StreamFacts, runs: Iterable[FactRun], end: int | None) -> Closed:
    """The closed region: from 1 up to C1 and as far as C2 covers, but not into a fork."""
    settled = [run for run in runs if run.is_settled and run.held is not ImportedFact.UNSEEN]
    forked = min((fork.seq for fork in facts.forks), default=None)
    reached = Ranges((run.first, run.last) for run in settled).prefix()
    to_seq = min(seq for seq in (reached, end, forked and forked - 1) if seq is not None)
    if facts.source is not None and to_seq == end:
        return Closed(to_seq=to_seq, before=facts.source.created_at)
    # The next event may be of the same second; hub time never decreases within a stream.
    times = [run.time_last for run in settled if run.last == to_seq]
    before = max(times, default=_no_later(settled, to_seq))
    return Closed(to_seq=to_seq, before=before)


def _no_later(settled: Iterable[FactRun], to_seq: int) -> int:
    """A time not after that of ``to_seq``, if no run ends there."""
    return max((run.time_last for run in settled if run.last < to_seq), default=0)


def _states(runs: Iterable[FactRun], bundle_facts: Iterable[BundleFact]) -> dict[bytes, Class]:
    states = {run.bundle_id: Class.PARTIAL for run in runs if run.held is ImportedFact.UNSEEN}
    states |= {fact.bundle_id: _OF_STATE.get(fact.state, Class.MISSING) for fact in bundle_facts}
    return states


def _lost(
    exports: Iterable[Export],
    states: dict[bytes, Class],
    bundle_facts: Iterable[BundleFact],
    classes: dict[Class, Ranges],
) -> list[LostBundle]:
    sources: dict[tuple[bytes, int, int], set[str]] = defaultdict(set)
    for export in exports:
        sources[export.bundle_id, export.first, export.last].add(export.described_by)
    for fact in bundle_facts:
        sources[fact.bundle_id, fact.first, fact.last].add("import audit")
    lost = []
    for (bundle_id, first, last), by in sources.items():
        state = states.get(bundle_id, Class.MISSING)
        events = classes[state].within(first, last).count
        if events:
            lost.append(
                LostBundle(
                    bundle_id=bundle_id,
                    first=first,
                    last=last,
                    state=state,
                    events=events,
                    described_by=tuple(sorted(by)),
                )
            )
    return sorted(lost, key=lambda item: (item.first, item.last, item.bundle_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileReport:
    """The report, with streams by hub and name, and ledgers by bridge. ``unplaced`` bundles were
    refused before their range was known, and no ledger or audit entry has it either.
    """

    streams: tuple[StreamReport, ...]
    ledgers: tuple[LedgerReport, ...]
    forks: tuple[ForkFact, ...]
    repeats: tuple[tuple[bytes, int], ...]
    unplaced: tuple[bytes, ...]
    foreign: tuple[ForeignFact, ...]
    sources: tuple[CheckpointFact, ...]
    target: CheckpointFact | None

    @property
    def closed_before(self) -> int:
        """The hub time before which every stream is accounted for (K2)."""
        return min((stream.closed.before for stream in self.streams), default=0)

    @property
    def has_alarms(self) -> bool:
        odd = [ledger for ledger in self.ledgers if ledger.repeated or ledger.forked]
        lies = [stream for stream in self.streams if stream.unfulfilled or stream.duplicate]
        return bool(self.forks or odd or lies or self.foreign)

    @property
    def is_whole(self) -> bool:
        """Whether every event known to be exported is here, without any alarm."""
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
            "events": {class_.value: self.count(class_) for class_ in Class},
            "checkpoints": {
                "sources": [_checkpoint(source) for source in self.sources],
                "target": _checkpoint(self.target) if self.target else None,
            },
            "streams": [_stream(stream) for stream in self.streams],
            "ledgers": [_ledger(ledger) for ledger in self.ledgers],
            "repeats": [
                {"bundle_id": bundle_id.hex(), "times": times} for bundle_id, times in self.repeats
            ],
            "unplaced": [bundle_id.hex() for bundle_id in self.unplaced],
            "alarms": _alarms(self),
        }

    def encode(self) -> bytes:
        return canonical_json.encode(self.document())

    def digest(self) -> bytes:
        """The digest that is signed, recorded and anchored."""
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
    return {"events": ranges.count, "ranges": [list(span) for span in ranges]}


def _stream(report: StreamReport) -> dict[str, Any]:
    return {
        "hub_id": report.hub_id.hex(),
        "stream": report.stream,
        "target": report.target,
        "horizon": report.horizon,
        "exported": _set(report.exported),
        "classes": {name.value: _set(ranges) for name, ranges in report.classes.items()},
        "duplicate": _set(report.duplicate),
        "unannounced": _set(report.unannounced),
        "unfulfilled": _set(report.unfulfilled),
        "unreported": _set(report.unreported),
        "closed": {"to_seq": report.closed.to_seq, "before": report.closed.before},
        "open": _set(report.open),
        "bundles": [
            {
                "bundle_id": bundle.bundle_id.hex(),
                "from_seq": bundle.first,
                "to_seq": bundle.last,
                "state": bundle.state.value,
                "events": bundle.events,
                "described_by": list(bundle.described_by),
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
    alarms: list[dict[str, Any]] = [
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
        alarms += [
            {"alarm": alarm, "bridge_id": bridge_id, "n": n}
            for alarm, numbers in (
                ("ledger.repeated", ledger.repeated), ("ledger.forked", ledger.forked)
            )
            for n in numbers
        ]  # fmt: skip
    alarms += [
        {"alarm": "import.foreign", "target": message.target, "seq": message.seq}
        for message in report.foreign
    ]
    for stream in report.streams:
        alarms += [
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
    return alarms


@dataclass(frozen=True, slots=True)
class SignedReconcileReport:
    """A signed report; the signature is over the digest of its canonical form."""

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
        document = parse_json(raw)
        try:
            report, signer, signature = (
                document["report"],
                document["signer"],
                document["signature"],
            )
            signed = cls(report, bytes.fromhex(signer), bytes.fromhex(signature))
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"expected a signed report: {error}") from error
        if type(report) is not dict or report.get("kind") != KIND or set(document) != _FIELDS:
            raise Malformed("expected a report of veen bridge reconcile, got another document")
        if report.get("version") != VERSION:
            raise WrongVersion(
                f"expected a report of version {VERSION}, got {report.get('version')!r}: "
                f"{LATER_RELEASE}"
            )
        if signed.encode() != raw.removesuffix(b"\n"):
            raise Malformed("expected canonical JSON, got another form of the report")
        return signed

    def verify(self, signer: bytes) -> None:
        """Raise Untrusted unless ``signer``, a key known from elsewhere, has signed the report."""
        if self.signer != signer:
            raise Untrusted(
                f"the report: expected a signature by {signer.hex()}, got {self.signer.hex()}"
            )
        if not signature_is_valid(signer, self.signature, self.digest()):
            raise Untrusted("the signature of the report is not valid: it was changed")
