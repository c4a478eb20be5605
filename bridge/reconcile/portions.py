"""Reconciliation of facts that are too many to hold: portion by portion, each boiled down first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from bridge.reconcile import alarms, compact, fact_file
from bridge.reconcile.compact import Run
from bridge.reconcile.facts import Facts
from bridge.reconcile.reconcile import reconcile_runs, settled_to
from bridge.reconcile.report import Report

CHECKPOINTS: Final = ('["source"', '["target"')
_KINDS: Final = (
    "export", "import", "standing", "entry", "repeat", "fork", "route", "stranger", "source",
    "target",
)  # fmt: skip
_LINES: Final = 1 << 15


def distilled(lines: Iterable[str], settled: dict[str, int] | None) -> Iterator[tuple[str, Any]]:
    """What a portion of the facts comes down to, by kind; runs are joined as far as they go."""
    facts = fact_file.read(one for one in lines if not one.startswith(CHECKPOINTS))
    exports, imports = list(facts.exports), list(facts.imports)
    yield from (("run", one) for one in compact.runs(imports, settled))
    yield from (("claim", one) for one in set(alarms.root_claims(exports, imports, ())))
    for kind, found in (
        ("export", exports),
        ("standing", facts.standings),
        ("entry", facts.entries),
        ("repeat", facts.repeats),
        ("fork", facts.forks),
        ("route", facts.routes),
        ("stranger", facts.strangers),
    ):
        yield from ((kind, one) for one in set(found))


def reconcile_files(paths: Sequence[Path]) -> Report:
    """The report of files of facts, in memory that grows with the bundles and not the events."""
    heads = fact_file.read(one for one in _lines(paths) if one.startswith(CHECKPOINTS))
    settled = settled_to(heads.target)
    found: dict[str, list[Any]] = {name: [] for name in (*_KINDS, "claim")}
    runs: list[Run] = []
    lines = _lines(paths)
    while portion := list(islice(lines, _LINES)):
        new: list[Run] = []
        for kind, one in distilled(portion, settled):
            (new if kind == "run" else found[kind]).append(one)
        runs = compact.joined([*runs, *new])
    claims = found.pop("claim")
    facts = with_checkpoints(fact_file.facts_of(found), heads)
    return reconcile_runs(facts, runs, claims)


def with_checkpoints(facts: Facts, heads: Facts) -> Facts:
    return Facts(
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
