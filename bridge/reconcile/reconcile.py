"""Reconciliation: what was exported against what was imported, from facts alone (AGB0 4.7).

It consists of independent parts, one for each stream and each ledger, which can run in parallel.
Facts that do not fit into memory are reduced batch by batch first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from bridge.reconcile.facts import (
    KINDS,
    BundleFact,
    BundleState,
    CheckpointFact,
    Export,
    ForkFact,
    LedgerFact,
    ReconcileFacts,
    RouteFact,
    by_kind,
    facts_of,
    read_facts,
)
from bridge.reconcile.ranges import FactRun, join_runs, runs_of
from bridge.reconcile.report import (
    LedgerReport,
    ReconcileReport,
    RootClaim,
    StreamFacts,
    StreamReport,
    contradictions,
    count_repeats,
    reconcile_ledger,
    reconcile_stream,
    root_claims,
)

CHECKPOINTS: Final = ('["source"', '["target"')
_LINES: Final = 1 << 15


class StreamKey(NamedTuple):
    hub_id: bytes
    stream: str


class Newest(NamedTuple):
    """The newest fact of each bundle, and the bundles whose range is unknown."""

    bundle_facts: list[BundleFact]
    unplaced: tuple[bytes, ...]


def reconcile(facts: ReconcileFacts) -> ReconcileReport:
    imports = list(facts.imports)
    claims = root_claims(facts.exports, imports, ())
    return reconcile_runs(facts, runs_of(imports, settled_to(facts.target)), claims)


def reconcile_runs(
    facts: ReconcileFacts, runs: Iterable[FactRun], claims: Iterable[RootClaim]
) -> ReconcileReport:
    """Reconcile facts whose imports are already joined into runs, with their roots as claims."""
    exports = list(facts.exports)
    newest = newest_states(facts.bundle_facts, exports)
    of_sources = root_claims((), (), facts.sources)
    forks = sorted({*facts.forks, *contradictions(chain(claims, of_sources))})
    parts = stream_facts(exports, runs, newest.bundle_facts, forks, facts)
    return assemble(
        facts,
        streams=[reconcile_stream(part) for part in parts],
        ledgers=ledgers(facts.entries),
        forks=forks,
        unplaced=newest.unplaced,
    )


def assemble(
    facts: ReconcileFacts,
    *,
    streams: Iterable[StreamReport],
    ledgers: Iterable[LedgerReport],
    forks: Iterable[ForkFact],
    unplaced: Iterable[bytes],
) -> ReconcileReport:
    return ReconcileReport(
        streams=tuple(sorted(streams, key=lambda item: (item.hub_id, item.stream))),
        ledgers=tuple(sorted(ledgers, key=lambda item: item.bridge_id)),
        forks=tuple(sorted(forks)),
        repeats=count_repeats(facts.repeats),
        unplaced=tuple(sorted(unplaced)),
        foreign=tuple(sorted(set(facts.foreign))),
        sources=tuple(sorted(facts.sources)),
        target=facts.target,
    )


def settled_to(target: CheckpointFact | None) -> dict[str, int] | None:
    return None if target is None else {end.stream: end.last for end in target.ends}


def newest_states(bundle_facts: Iterable[BundleFact], exports: Iterable[Export]) -> Newest:
    """The newest fact of each bundle; a success is final, whatever happened to other copies
    later. If it does not contain the range of the bundle, another fact or export does.
    """
    last: dict[bytes, BundleFact] = {}
    placed: dict[bytes, BundleFact] = {}
    for fact in sorted(bundle_facts, key=_by_weight):
        last[fact.bundle_id] = fact
        if fact.first:
            placed[fact.bundle_id] = fact
    bare = {fact.bundle_id for fact in last.values() if not fact.first} - placed.keys()
    known = {export.bundle_id: export for export in sorted(exports) if export.bundle_id in bare}
    newest, unplaced = [], []
    for bundle_id, fact in last.items():
        where = placed.get(bundle_id) or known.get(bundle_id)
        if where is None:
            unplaced.append(bundle_id)
            continue
        newest.append(
            fact._replace(
                hub_id=where.hub_id, stream=where.stream, first=where.first, last=where.last
            )
        )
    return Newest(newest, tuple(sorted(unplaced)))


def _by_weight(fact: BundleFact) -> tuple[object, ...]:
    return fact.state is BundleState.IMPORTED, fact.at, fact.state.value, fact[3:]


def stream_facts(
    exports: Iterable[Export],
    runs: Iterable[FactRun],
    bundle_facts: Iterable[BundleFact],
    forks: Iterable[ForkFact],
    facts: ReconcileFacts,
) -> list[StreamFacts]:
    """The facts of each stream that any fact except a checkpoint is about."""
    by_export = _by_stream(exports)
    by_run = _by_stream(runs)
    by_bundle_fact = _by_stream(bundle_facts)
    by_fork = _by_stream(forks)
    routes = {StreamKey(route.hub_id, route.stream): route for route in sorted(facts.routes)}
    keys = {*by_export, *by_run, *by_bundle_fact, *by_fork, *routes}
    sources = {source.hub_id: source for source in facts.sources}
    return [
        StreamFacts(
            hub_id=key.hub_id,
            stream=key.stream,
            target=target_of(routes.get(key), by_run[key]),
            runs=by_run[key],
            exports=by_export[key],
            bundle_facts=by_bundle_fact[key],
            forks=by_fork[key],
            source=sources.get(key.hub_id),
        )
        for key in sorted(keys)
    ]


def target_of(route: RouteFact | None, runs: Iterable[FactRun]) -> str:
    """The target of a stream by the settings, else by its imports; empty if neither is known."""
    return route.target if route else min((run.place[0] for run in runs), default="")


def ledgers(entries: Iterable[LedgerFact]) -> list[LedgerReport]:
    by_bridge: dict[bytes, list[LedgerFact]] = defaultdict(list)
    for entry in entries:
        by_bridge[entry.bridge_id].append(entry)
    return [reconcile_ledger(*bridge_entries) for bridge_entries in by_bridge.items()]


def _by_stream(facts: Iterable[Export | FactRun | BundleFact | ForkFact]) -> dict[StreamKey, list]:  # type: ignore[type-arg]
    by_stream: dict[StreamKey, list] = defaultdict(list)  # type: ignore[type-arg]
    for fact in facts:
        by_stream[StreamKey(fact.hub_id, fact.stream)].append(fact)
    return by_stream


def distilled(lines: Iterable[str], settled: dict[str, int] | None) -> Iterator[tuple[str, Any]]:
    """Reduce a batch of facts, by kind; runs are joined as far as possible."""
    facts = read_facts(line for line in lines if not line.startswith(CHECKPOINTS))
    exports, imports = list(facts.exports), list(facts.imports)
    yield from (("run", run) for run in runs_of(imports, settled))
    yield from (("claim", claim) for claim in set(root_claims(exports, imports, ())))
    for kind, facts_of_kind in by_kind(replace(facts, exports=exports, imports=())):
        yield from ((kind, fact) for fact in set(facts_of_kind))


def reconcile_files(paths: Sequence[Path], batch_lines: int = _LINES) -> ReconcileReport:
    """The report of files of facts, in memory proportional to the bundles and not to the events."""
    heads = read_facts(line for line in _lines(paths) if line.startswith(CHECKPOINTS))
    settled = settled_to(heads.target)
    reduced: dict[str, list[Any]] = {name: [] for name in (*KINDS, "claim")}
    runs: list[FactRun] = []
    lines = _lines(paths)
    while batch := list(islice(lines, batch_lines)):
        new: list[FactRun] = []
        for kind, fact in distilled(batch, settled):
            (new if kind == "run" else reduced[kind]).append(fact)
        runs = join_runs([*runs, *new])
    claims = reduced.pop("claim")
    facts = replace(facts_of(reduced), sources=heads.sources, target=heads.target)
    return reconcile_runs(facts, runs, claims)


def _lines(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        with path.open(encoding="utf-8") as file:
            yield from file
