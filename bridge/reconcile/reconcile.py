"""Reconciliation: what was exported against what was imported, from facts alone (AGB0 4.7).

It is made of parts that do not need each other, one for each stream and each ledger, so that they
can be done beside each other.

Reconciliation of facts that are too many to hold: portion by portion, each boiled down first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from bridge.reconcile.facts import (
    BundleFact,
    BundleState,
    CheckpointFact,
    Export,
    ForkFact,
    LedgerFact,
    ReconcileFacts,
    RouteFact,
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


class StreamKey(NamedTuple):
    hub_id: bytes
    stream: str


class Newest(NamedTuple):
    """The newest standing of each bundle, and the bundles of which nobody knows what they hold."""

    standings: list[BundleFact]
    unplaced: tuple[bytes, ...]


def reconcile(facts: ReconcileFacts) -> ReconcileReport:
    imports = list(facts.imports)
    claims = root_claims(facts.exports, imports, ())
    return reconcile_runs(facts, runs_of(imports, settled_to(facts.target)), claims)


def reconcile_runs(
    facts: ReconcileFacts, runs: Iterable[FactRun], claims: Iterable[RootClaim]
) -> ReconcileReport:
    """Of facts whose imports have been joined into runs, and their roots set apart."""
    exports = list(facts.exports)
    newest = newest_standings(facts.standings, exports)
    of_sources = root_claims((), (), facts.sources)
    forks = sorted({*facts.forks, *contradictions(chain(claims, of_sources))})
    parts = stream_facts(exports, runs, newest.standings, forks, facts)
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
        strangers=tuple(sorted(set(facts.strangers))),
        sources=tuple(sorted(facts.sources)),
        target=facts.target,
    )


def settled_to(target: CheckpointFact | None) -> dict[str, int] | None:
    return None if target is None else {end.stream: end.last for end in target.ends}


def newest_standings(standings: Iterable[BundleFact], exports: Iterable[Export]) -> Newest:
    """The last word on each bundle; a success is one, whatever became of other copies later. Where
    it does not say what the bundle holds, another standing or whoever exported it does.
    """
    last: dict[bytes, BundleFact] = {}
    placed: dict[bytes, BundleFact] = {}
    for standing in sorted(standings, key=_by_weight):
        last[standing.bundle_id] = standing
        if standing.first:
            placed[standing.bundle_id] = standing
    bare = {item.bundle_id for item in last.values() if not item.first} - placed.keys()
    known = {export.bundle_id: export for export in sorted(exports) if export.bundle_id in bare}
    result, unplaced = [], []
    for bundle_id, item in last.items():
        where = placed.get(bundle_id) or known.get(bundle_id)
        if where is None:
            unplaced.append(bundle_id)
            continue
        result.append(
            item._replace(
                hub_id=where.hub_id, stream=where.stream, first=where.first, last=where.last
            )
        )
    return Newest(result, tuple(sorted(unplaced)))


def _by_weight(fact: BundleFact) -> tuple[object, ...]:
    return fact.state is BundleState.IMPORTED, fact.at, fact.state.value, fact[3:]


def stream_facts(
    exports: Iterable[Export],
    runs: Iterable[FactRun],
    standings: Iterable[BundleFact],
    forks: Iterable[ForkFact],
    facts: ReconcileFacts,
) -> list[StreamFacts]:
    """The facts of each stream that anything but a checkpoint tells of."""
    by_export = _by_stream(exports)
    by_run = _by_stream(runs)
    by_standing = _by_stream(standings)
    by_fork = _by_stream(forks)
    routes = {StreamKey(route.hub_id, route.stream): route for route in sorted(facts.routes)}
    keys = {*by_export, *by_run, *by_standing, *by_fork, *routes}
    sources = {source.hub_id: source for source in facts.sources}
    return [
        StreamFacts(
            hub_id=key.hub_id,
            stream=key.stream,
            target=target_of(routes.get(key), by_run[key]),
            runs=by_run[key],
            exports=by_export[key],
            standings=by_standing[key],
            forks=by_fork[key],
            source=sources.get(key.hub_id),
        )
        for key in sorted(keys)
    ]


def target_of(route: RouteFact | None, runs: Iterable[FactRun]) -> str:
    """Where a stream goes by the settings, else where it went; empty when neither is known."""
    return route.target if route else min((run.place[0] for run in runs), default="")


def ledgers(entries: Iterable[LedgerFact]) -> list[LedgerReport]:
    by_bridge: dict[bytes, list[LedgerFact]] = defaultdict(list)
    for entry in entries:
        by_bridge[entry.bridge_id].append(entry)
    return [reconcile_ledger(*item) for item in by_bridge.items()]


def _by_stream(value: Iterable[Export | FactRun | BundleFact | ForkFact]) -> dict[StreamKey, list]:  # type: ignore[type-arg]
    split: dict[StreamKey, list] = defaultdict(list)  # type: ignore[type-arg]
    for item in value:
        split[StreamKey(item.hub_id, item.stream)].append(item)
    return split


CHECKPOINTS: Final = ('["source"', '["target"')
_KINDS: Final = (
    "export", "import", "standing", "entry", "repeat", "fork", "route", "stranger", "source",
    "target",
)  # fmt: skip
_LINES: Final = 1 << 15


def distilled(lines: Iterable[str], settled: dict[str, int] | None) -> Iterator[tuple[str, Any]]:
    """What a portion of the facts comes down to, by kind; runs are joined as far as they go."""
    facts = read_facts(line for line in lines if not line.startswith(CHECKPOINTS))
    exports, imports = list(facts.exports), list(facts.imports)
    yield from (("run", run) for run in runs_of(imports, settled))
    yield from (("claim", root_claim) for root_claim in set(root_claims(exports, imports, ())))
    for kind, result in (
        ("export", exports),
        ("standing", facts.standings),
        ("entry", facts.entries),
        ("repeat", facts.repeats),
        ("fork", facts.forks),
        ("route", facts.routes),
        ("stranger", facts.strangers),
    ):
        yield from ((kind, item) for item in set(result))


def reconcile_files(paths: Sequence[Path]) -> ReconcileReport:
    """The report of files of facts, in memory that grows with the bundles and not the events."""
    heads = read_facts(line for line in _lines(paths) if line.startswith(CHECKPOINTS))
    settled = settled_to(heads.target)
    result: dict[str, list[Any]] = {name: [] for name in (*_KINDS, "claim")}
    runs: list[FactRun] = []
    lines = _lines(paths)
    while batch := list(islice(lines, _LINES)):
        new: list[FactRun] = []
        for kind, item in distilled(batch, settled):
            (new if kind == "run" else result[kind]).append(item)
        runs = join_runs([*runs, *new])
    claims = result.pop("claim")
    facts = with_checkpoints(facts_of(result), heads)
    return reconcile_runs(facts, runs, claims)


def with_checkpoints(facts: ReconcileFacts, heads: ReconcileFacts) -> ReconcileFacts:
    return ReconcileFacts(
        exports=facts.exports,
        standings=facts.standings,
        repeats=facts.repeats,
        entries=facts.entries,
        forks=facts.forks,
        routes=facts.routes,
        strangers=facts.strangers,
        sources=heads.sources,
        target=heads.target,
    )


def _lines(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        with path.open(encoding="utf-8") as file:
            yield from file
