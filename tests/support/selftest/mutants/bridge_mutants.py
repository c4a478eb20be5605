"""A bridge with one thing broken: by its name, and how."""
# ruff: noqa: PLC0415, ARG005 - a process loads only what is broken in it

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from support.selftest.mutants.breaking import swap


def bodies_undisclosed() -> None:
    from bridge.exporter import build

    strict = build._bundled
    swap(build, "_bundled", lambda pair, opened: strict(pair, None))


def ledger_blind() -> None:
    """Whatever is held, all of a bundle is new."""
    from bridge.importer import admission
    from bridge.importer.admission import Placement

    swap(admission, "place", lambda proof, offered, held: Placement((offered,)))


def volumes_unchecked() -> None:
    from bridge.carrier import reader

    swap(reader, "verify_hash", lambda *_given: None)


def gaps_ignored() -> None:
    from bridge.importer import admission

    strict = admission.place
    swap(admission, "place", lambda *given: replace(strict(*given), gap=None))


def nothing_missing() -> None:
    from bridge.reconcile import reconcile
    from bridge.reconcile.ranges import Ranges
    from bridge.reconcile.report import Class
    from bridge.reconcile.report import reconcile_stream as strict

    def lax(facts: Any) -> Any:
        result = strict(facts)
        return replace(result, classes=result.classes | {Class.MISSING: Ranges()})

    swap(reconcile, "reconcile_stream", lax)


def log_stays() -> None:
    """The exporter's audit log is not carried."""
    from bridge.stream_map import ONLINE_LOG, BridgeStreamMap

    strict = BridgeStreamMap.sources
    swap(
        BridgeStreamMap,
        "sources",
        lambda self, hub_id: tuple(item for item in strict(self, hub_id) if item != ONLINE_LOG),
    )


def origins_believed() -> None:
    from bridge.prove import claims

    swap(claims, "_bad_origins", lambda evidence: iter(()))


def successes_believed() -> None:
    from bridge.prove import claims

    swap(claims, "_incomplete", lambda evidence: iter(()))


def traces_believed() -> None:
    from bridge.prove import claims

    swap(claims, "_first", lambda traces, standing: None)


def forks_forgotten() -> None:
    from bridge.reconcile import collect
    from bridge.reconcile.collect_logs import offline_facts as strict
    from bridge.reconcile.facts import ForkFact

    swap(
        collect,
        "offline_facts",
        lambda log: (item for item in strict(log) if type(item) is not ForkFact),
    )


LOCAL: dict[str, Callable[[], None]] = {
    "bodies undisclosed": bodies_undisclosed,
    "ledger blind": ledger_blind,
    "volumes unchecked": volumes_unchecked,
    "gaps ignored": gaps_ignored,
    "nothing missing": nothing_missing,
    "log stays": log_stays,
    "origins believed": origins_believed,
    "successes believed": successes_believed,
    "traces believed": traces_believed,
    "forks forgotten": forks_forgotten,
}
