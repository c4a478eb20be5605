"""Reconciliation: what was exported against what was imported, from facts alone (AGB0 4.7).

It is made of parts that do not need each other, one for each stream and each ledger, so that they
can be done beside each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from bridge.reconcile import alarms, compact
from bridge.reconcile.alarms import LedgerReport, RootClaim
from bridge.reconcile.compact import Run
from bridge.reconcile.facts import (
    Checkpoint,
    Entry,
    Export,
    Facts,
    Fork,
    Route,
    Standing,
    State,
)
from bridge.reconcile.report import Report, count_repeats
from bridge.reconcile.stream_report import StreamFacts, StreamReport, reconcile_stream


class StreamKey(NamedTuple):
    hub_id: bytes
    stream: str


class Newest(NamedTuple):
    """The newest standing of each bundle, and the bundles of which nobody knows what they hold."""

    standings: list[Standing]
    unplaced: tuple[bytes, ...]


def reconcile(facts: Facts) -> Report:
    imports = list(facts.imports)
    claims = alarms.root_claims(facts.exports, imports, ())
    return reconcile_runs(facts, compact.runs(imports, settled_to(facts.target)), claims)


def reconcile_runs(facts: Facts, runs: Iterable[Run], claims: Iterable[RootClaim]) -> Report:
    """Of facts whose imports have been joined into runs, and their roots set apart."""
    exports = list(facts.exports)
    newest = newest_standings(facts.standings, exports)
    of_sources = alarms.root_claims((), (), facts.sources)
    forks = sorted({*facts.forks, *alarms.contradictions(chain(claims, of_sources))})
    parts = stream_facts(exports, runs, newest.standings, forks, facts)
    return assemble(
        facts,
        streams=[reconcile_stream(one) for one in parts],
        ledgers=ledgers(facts.entries),
        forks=forks,
        unplaced=newest.unplaced,
    )


def assemble(
    facts: Facts,
    *,
    streams: Iterable[StreamReport],
    ledgers: Iterable[LedgerReport],
    forks: Iterable[Fork],
    unplaced: Iterable[bytes],
) -> Report:
    return Report(
        streams=tuple(sorted(streams, key=lambda one: (one.hub_id, one.stream))),
        ledgers=tuple(sorted(ledgers, key=lambda one: one.bridge_id)),
        forks=tuple(sorted(forks)),
        repeats=count_repeats(facts.repeats),
        unplaced=tuple(sorted(unplaced)),
        strangers=tuple(sorted(set(facts.strangers))),
        sources=tuple(sorted(facts.sources)),
        target=facts.target,
    )


def settled_to(target: Checkpoint | None) -> dict[str, int] | None:
    return None if target is None else {one.stream: one.last for one in target.ends}


def newest_standings(standings: Iterable[Standing], exports: Iterable[Export]) -> Newest:
    """The last word on each bundle; a success is one, whatever became of other copies later. Where
    it does not say what the bundle holds, another standing or whoever exported it does.
    """
    last: dict[bytes, Standing] = {}
    placed: dict[bytes, Standing] = {}
    for one in sorted(standings, key=_by_weight):
        last[one.bundle_id] = one
        if one.first:
            placed[one.bundle_id] = one
    bare = {one.bundle_id for one in last.values() if not one.first} - placed.keys()
    known = {one.bundle_id: one for one in sorted(exports) if one.bundle_id in bare}
    found, unplaced = [], []
    for bundle_id, one in last.items():
        where = placed.get(bundle_id) or known.get(bundle_id)
        if where is None:
            unplaced.append(bundle_id)
            continue
        found.append(
            one._replace(
                hub_id=where.hub_id, stream=where.stream, first=where.first, last=where.last
            )
        )
    return Newest(found, tuple(sorted(unplaced)))


def _by_weight(one: Standing) -> tuple[object, ...]:
    return one.state is State.IMPORTED, one.at, one.state.value, one[3:]


def stream_facts(
    exports: Iterable[Export],
    runs: Iterable[Run],
    standings: Iterable[Standing],
    forks: Iterable[Fork],
    facts: Facts,
) -> list[StreamFacts]:
    """The facts of each stream that anything but a checkpoint tells of."""
    by_export = _by_stream(exports)
    by_run = _by_stream(runs)
    by_standing = _by_stream(standings)
    by_fork = _by_stream(forks)
    routes = {StreamKey(one.hub_id, one.stream): one for one in sorted(facts.routes)}
    keys = {*by_export, *by_run, *by_standing, *by_fork, *routes}
    sources = {one.hub_id: one for one in facts.sources}
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


def target_of(route: Route | None, runs: Iterable[Run]) -> str:
    """Where a stream goes by the settings, else where it went; empty when neither is known."""
    return route.target if route else min((one.place[0] for one in runs), default="")


def ledgers(entries: Iterable[Entry]) -> list[LedgerReport]:
    by_bridge: dict[bytes, list[Entry]] = defaultdict(list)
    for one in entries:
        by_bridge[one.bridge_id].append(one)
    return [alarms.reconcile_ledger(*item) for item in by_bridge.items()]


def _by_stream(found: Iterable[Export | Run | Standing | Fork]) -> dict[StreamKey, list]:  # type: ignore[type-arg]
    split: dict[StreamKey, list] = defaultdict(list)  # type: ignore[type-arg]
    for one in found:
        split[StreamKey(one.hub_id, one.stream)].append(one)
    return split
