"""Random histories of a bridge: what was carried, lost, doubled, cut short and carried again.

A history is played out event by event; the facts that it leaves behind are what a reconciliation
gets to see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

from bridge.reconcile.facts import (
    BundleFact,
    BundleState,
    CheckpointFact,
    End,
    Export,
    ForkFact,
    Import,
    ImportedFact,
    LedgerFact,
    ReconcileFacts,
    Repeat,
    RouteFact,
)

TAIL = 4
"""Short, so that histories also lose more in a row than a ledger tells."""


def named(*parts: object) -> bytes:
    return sha256(repr(parts).encode()).digest()


@dataclass(frozen=True)
class Bundle:
    hub_id: bytes
    stream: str
    first: int
    last: int
    bundle_id: bytes


@dataclass
class History:
    """The facts so far, and the true times of all events."""

    random: Random
    hub_id: bytes
    times: dict[str, list[int]] = field(default_factory=dict)
    exports: list[Export] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    bundle_facts: list[BundleFact] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)
    entries: list[LedgerFact] = field(default_factory=list)
    forks: list[ForkFact] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    at: int = 0

    def tick(self) -> int:
        self.at += 1
        return self.at

    def root(self, stream: str, seq: int) -> bytes:
        return named("root", self.hub_id, stream, seq)


def a_history(seed: int) -> tuple[ReconcileFacts, History]:
    random = Random(seed)
    history = History(random, named("hub", random.randrange(2)))
    streams = ["export/a", "export/<b>&", "record/c"][: random.randint(1, 3)]
    for name in streams:
        length = random.choice([0, 1, 7, 40])
        history.times[name] = _times(random, length)
    bundles = [bundle for name in streams for bundle in _bundles(history, name)]
    random.shuffle(bundles)
    _carry(history, bundles)
    _misbehave(history, bundles)
    facts = ReconcileFacts(
        exports=history.exports,
        imports=history.imports,
        bundle_facts=history.bundle_facts,
        repeats=history.repeats,
        entries=history.entries,
        forks=history.forks,
        routes=[
            RouteFact(history.hub_id, name, _target(name))
            for name in streams
            if random.random() < 0.8
        ],
        sources=_source(history),
        target=_c2(history),
    )
    return facts, history


def _target(name: str) -> str:
    return "import/" + name


def _times(random: Random, length: int) -> list[int]:
    result, now = [], 1_000
    for _ in range(length):
        now += random.choice([0, 0, 1, 5])
        result.append(now)
    return result


def _bundles(history: History, name: str) -> list[Bundle]:
    """Bundles one after another, and some ranges carried again under another id."""
    random, at, result = history.random, 1, []
    length = len(history.times[name])
    exported = random.randint(0, length)
    while at <= exported:
        last = min(exported, at + random.randint(0, 8))
        result.append(_bundle(history, name, at, last, 0))
        at = last + 1
    for again in range(1, random.randint(1, 3)):
        if exported:
            first = random.randint(1, exported)
            result.append(_bundle(history, name, first, random.randint(first, exported), again))
    return result


def _bundle(history: History, name: str, first: int, last: int, again: int) -> Bundle:
    bundle_id = named("bundle", history.hub_id, name, first, last, again)
    return Bundle(history.hub_id, name, first, last, bundle_id)


def _carry(history: History, bundles: list[Bundle]) -> None:
    random, prev, ledger = history.random, bytes(32), []
    audited = random.randint(0, len(bundles))
    for n, bundle in enumerate(bundles, 1):
        entry_hash = named("entry", n, prev, bundle.bundle_id)
        ledger.append((LedgerFact(named("bridge"), n, prev, entry_hash, bundle.bundle_id), bundle))
        prev = entry_hash
        if n <= audited:
            root = history.root(bundle.stream, bundle.last)
            history.exports.append(_export(bundle, "audit", root))
    carriers = [n for n in range(1, len(ledger) + 1) if random.random() < 0.7]
    random.shuffle(carriers)
    for n in carriers:
        for entry, bundle in ledger[max(0, n - TAIL) : n]:
            history.entries.append(entry)
            history.exports.append(_export(bundle, "ledger"))
        for _ in range(random.choice([1, 1, 1, 2])):
            _arrive(history, ledger[n - 1][1])


def _export(bundle: Bundle, by: str, root: bytes = b"") -> Export:
    return Export(
        bundle.hub_id, bundle.stream, bundle.first, bundle.last, bundle.bundle_id, by, root
    )


def _arrive(history: History, bundle: Bundle) -> None:
    """What became of a carrier that arrived."""
    random = history.random
    outcome = random.choice(["import"] * 5 + ["partial", "waiting", "quarantined", "unread"])
    if outcome == "unread":
        history.bundle_facts.append(
            BundleFact(bundle.bundle_id, history.tick(), BundleState.QUARANTINED)
        )
        return
    history.exports.append(_export(bundle, "bundle"))
    if outcome == "import":
        _import(history, bundle, bundle.last - bundle.first + 1, ImportedFact.IMPORTED)
    elif outcome == "partial":
        written = random.randint(0, bundle.last - bundle.first)
        _import(history, bundle, written, ImportedFact.UNSEEN)
        _stand(history, bundle, BundleState.PARTIAL)
    else:
        _stand(history, bundle, BundleState(outcome))


def _stand(history: History, bundle: Bundle, state: BundleState) -> None:
    history.bundle_facts.append(
        BundleFact(
            bundle.bundle_id,
            history.tick(),
            state,
            bundle.hub_id,
            bundle.stream,
            bundle.first,
            bundle.last,
        )
    )


def _import(history: History, bundle: Bundle, count: int, held: ImportedFact) -> None:
    """Write the first events of a bundle that are not there yet, each under its own place."""
    random = history.random
    there = {
        import_.first
        for import_ in history.imports
        if import_.stream == bundle.stream and import_.held is not ImportedFact.UNSEEN
    }
    due = [n for n in range(bundle.first, bundle.last + 1) if n not in there][:count]
    if held is ImportedFact.IMPORTED and not due:
        history.repeats.append(Repeat(bundle.bundle_id, history.tick()))
    for n in due:
        excluded = held is ImportedFact.IMPORTED and random.random() < 0.1
        _write(history, bundle, n, ImportedFact.EXCLUDED if excluded else held)
    if held is ImportedFact.IMPORTED and random.random() < 0.9:
        _stand(history, bundle, BundleState.IMPORTED)


def _write(history: History, bundle: Bundle, seq: int, held: ImportedFact) -> None:
    target = _target(bundle.stream)
    history.places[target] = history.places.get(target, 0) + 1
    time = history.times[bundle.stream][seq - 1]
    history.imports.append(
        Import(
            bundle.hub_id,
            bundle.stream,
            seq,
            seq,
            bundle.bundle_id,
            held,
            target,
            history.places[target],
            time,
            time,
            history.root(bundle.stream, seq) if history.random.random() < 0.2 else b"",
        )
    )


def _misbehave(history: History, bundles: list[Bundle]) -> None:
    """Now and then what must never be: doubled events, forks, a ledger told twice."""
    random = history.random
    if bundles and random.random() < 0.15:
        bundle = random.choice(bundles)
        _write(history, bundle, random.randint(bundle.first, bundle.last), ImportedFact.IMPORTED)
    if bundles and random.random() < 0.1:
        _stand(history, random.choice(bundles), BundleState.IMPORTED)
    if bundles and random.random() < 0.1:
        bundle = random.choice(bundles)
        history.forks.append(ForkFact(bundle.hub_id, bundle.stream, bundle.last))
    if bundles and random.random() < 0.1:
        bundle = random.choice(bundles)
        other = named("another root")
        history.exports.append(_export(bundle, "audit", other))
        history.exports.append(_export(bundle, "audit", history.root(bundle.stream, bundle.last)))
    if random.random() < 0.1:
        history.bundle_facts.append(
            BundleFact(named("torn"), history.tick(), BundleState.QUARANTINED)
        )
    if history.entries and random.random() < 0.15:
        entry = random.choice(history.entries)
        changed: dict[str, Any] = {"entry_hash": named("other")} if random.random() < 0.5 else {
            "prev": named("elsewhere"), "entry_hash": named("other")
        }  # fmt: skip
        history.entries.append(entry._replace(**changed))


def _source(history: History) -> tuple[CheckpointFact, ...]:
    random = history.random
    if random.random() < 0.3:
        return ()
    ends = []
    for name, times in history.times.items():
        last = random.choice([len(times), random.randint(0, len(times))])
        if random.random() < 0.9:
            ends.append(End(name, last, history.root(name, last)))
    return (CheckpointFact(history.hub_id, named("c1"), 5_000, named("log"), tuple(sorted(ends))),)


def _c2(history: History) -> CheckpointFact | None:
    random = history.random
    if random.random() < 0.5:
        return None
    ends = tuple(
        End(name, random.choice([last, random.randint(0, last)]), named("r", name))
        for name, last in sorted(history.places.items())
    )
    return CheckpointFact(named("offline hub"), named("c2"), 6_000, named("log2"), ends)
