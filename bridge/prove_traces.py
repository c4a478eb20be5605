"""K1: the way of every imported event, from its origin over both audits to its place, and to the
zone's own record of its import (AGB0 5.2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from bridge.prove import Claim, spans
from bridge.prove_evidence import Evidence, Known, OriginKey
from bridge.prove_imports import Completed
from bridge.reconcile.facts import Entry
from bridge.stream_map import COMPLETED, IMPORTS, OFFLINE_LOG, ONLINE_LOG

SAYS = (
    "each imported event is traced from its origin over both audits to its place and to the "
    "record of its import"
)
Numbers = Mapping[bytes, list[Entry]]
"""Where each bundle stands in the ledgers of exporters."""


class _Standing(Enum):
    TRACED = "traced"
    OPEN = "open"
    """A log has not come as far yet as to tell of it."""
    UNTOLD = "untold"
    """Nothing says how far a log must come to tell of it."""
    BROKEN = "broken"


class _Trace(NamedTuple):
    standing: _Standing
    told: str = ""


def prove_traces(evidence: Evidence, entries: Iterable[Entry]) -> Claim:
    """Each log comes later than what it tells of. An event that one does not reach yet is open and
    named: its import was begun and is not closed, or its number in the ledger of its bridge is
    beyond the newest that this bridge's log tells of.
    """
    numbers: dict[bytes, list[Entry]] = defaultdict(list)
    for one in entries:
        numbers[one.bundle_id].append(one)
    traces = {key: _trace(evidence, numbers, one) for key, one in sorted(evidence.events.items())}
    traced = [key for key, one in traces.items() if one.standing is _Standing.TRACED]
    return Claim(
        name="K1",
        says=SAYS,
        witness={
            "traced": len(traced),
            "open": _named(traces, _Standing.OPEN),
            "untold": _named(traces, _Standing.UNTOLD),
            "chain": chain(evidence, traced[0]) if traced else None,
        },
        counterexample=_first(traces, _Standing.BROKEN),
        untold=_first(traces, _Standing.UNTOLD),
    )


def chain(evidence: Evidence, key: OriginKey) -> dict[str, Any]:
    """The way of one event, as far as it can be told: null where a link is not here."""
    one = evidence.events[key]
    exported = _export_of(evidence, one)
    imported = evidence.imports.get(one.bundle_id)
    completed = _completed_of(evidence, one)
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
        "offline_audit": {"stream": OFFLINE_LOG, "seq": imported[0]} if imported else None,
        "imported": {"stream": one.target, "seq": one.target_seq, "as": one.held.value},
        "recorded": {"stream": IMPORTS, "seq": completed.seq} if completed else None,
    }


def _trace(evidence: Evidence, numbers: Numbers, one: Known) -> _Trace:
    imported = evidence.imports.get(one.bundle_id)
    if imported is None:
        told = f"no success of bundle {one.bundle_id.hex()} stands in {OFFLINE_LOG}"
        return _Trace(_Standing.OPEN if _is_begun(evidence, one) else _Standing.BROKEN, told)
    if not imported[1].from_seq <= one.key.seq <= imported[1].to_seq:
        told = f"{OFFLINE_LOG} {imported[0]} tells of other events"
        return _Trace(_Standing.BROKEN, told)
    if _completed_of(evidence, one) is None:
        return _unrecorded(evidence, one)
    if _export_of(evidence, one) is None:
        return _unexported(evidence, numbers.get(one.bundle_id, []), one)
    return _Trace(_Standing.TRACED)


def _unexported(evidence: Evidence, entries: list[Entry], one: Known) -> _Trace:
    bundle = one.bundle_id.hex()
    if not entries:
        return _Trace(_Standing.UNTOLD, f"no ledger of a carrier tells of bundle {bundle}")
    told = f"no export of bundle {bundle} stands in {ONLINE_LOG}"
    is_ahead = any(each.n > evidence.reached.get(each.bridge_id, 0) for each in entries)
    return _Trace(_Standing.OPEN if is_ahead else _Standing.BROKEN, told)


def _unrecorded(evidence: Evidence, one: Known) -> _Trace:
    """Events of the bundle that speak of something else contradict it; none is no evidence."""
    bundle, (by_bundle, unread) = one.bundle_id.hex(), evidence.completed
    if unread is not None:
        return _Trace(_Standing.UNTOLD, unread)
    if any(each.placed is not None for each in by_bundle.get(one.bundle_id, ())):
        places = ", ".join(str(each.seq) for each in by_bundle[one.bundle_id])
        told = f"{IMPORTS} {places} tells otherwise of bundle {bundle}"
        return _Trace(_Standing.BROKEN, told)
    told = f"no {COMPLETED} says where bundle {bundle} stands, in {IMPORTS}; an import records it "
    return _Trace(_Standing.UNTOLD, f"{told}where [import_recorder] names an identity")


def _completed_of(evidence: Evidence, one: Known) -> Completed | None:
    for each in evidence.completed.by_bundle.get(one.bundle_id, ()):
        if each.tells_of(*one.key, one.target, one.target_seq):
            return each
    return None


def _is_begun(evidence: Evidence, one: Known) -> bool:
    begun = evidence.begun.get(one.bundle_id)
    return begun is not None and begun.from_seq <= one.key.seq <= begun.to_seq


def _export_of(evidence: Evidence, one: Known) -> int | None:
    for seq, told in evidence.exports.get(one.bundle_id, ()):
        key = (told.source_hub_id, told.stream)
        if key == one.key[:2] and told.from_seq <= one.key.seq <= told.to_seq:
            return seq
    return None


def _first(traces: Mapping[OriginKey, _Trace], standing: _Standing) -> str | None:
    found = (f"{key}: {one.told}" for key, one in traces.items() if one.standing is standing)
    return next(found, None)


def _named(traces: Mapping[OriginKey, _Trace], standing: _Standing) -> dict[str, list[list[int]]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, one in traces.items():
        if one.standing is standing:
            found[f"{key.stream} of {key.hub_id.hex()}"].append(key.seq)
    return {name: spans(seqs) for name, seqs in found.items()}
