"""One stream reconciled: every exported event in exactly one class (AGB0 4.7, K2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from bridge.reconcile.compact import Run
from bridge.reconcile.facts import Checkpoint, Export, Fork, Held, Standing, State
from bridge.reconcile.ranges import Ranges, repeated


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
    runs: Iterable[Run] = ()
    exports: Iterable[Export] = ()
    standings: Iterable[Standing] = ()
    forks: Iterable[Fork] = ()
    source: Checkpoint | None = None


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
    told_by: tuple[str, ...]


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
    untold: Ranges
    closed: Closed
    open: Ranges
    bundles: tuple[LostBundle, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to do for what was exported."""
        left = [self.classes[one] for one in Class if one not in _SETTLED]
        return not any([*left, self.duplicate, self.unfulfilled])


_SETTLED = (Class.IMPORTED, Class.EXCLUDED)
_OF_HELD = {
    Held.IMPORTED: Class.IMPORTED,
    Held.EXCLUDED: Class.EXCLUDED,
    Held.UNSEEN: Class.PARTIAL,
}
_OF_STATE = {
    State.PARTIAL: Class.PARTIAL,
    State.WAITING: Class.WAITING,
    State.QUARANTINED: Class.QUARANTINED,
}


def reconcile_stream(facts: StreamFacts) -> StreamReport:
    runs, exports = list(facts.runs), list(facts.exports)
    standings = [one for one in facts.standings if one.first]
    announced = Ranges((one.first, one.last) for one in exports)
    claims = _claims(runs, standings)
    claims[Class.MISSING] |= announced
    exported, classes = Ranges(), {}
    for one in Class:
        classes[one] = claims[one] - exported
        exported |= claims[one]
    settled = classes[Class.IMPORTED] | classes[Class.EXCLUDED]
    audited = Ranges((one.first, one.last) for one in standings if one.state is State.IMPORTED)
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
        duplicate=repeated((one.first, one.last) for one in runs if one.held is not Held.UNSEEN),
        unannounced=settled - announced,
        unfulfilled=audited - settled,
        untold=whole - exported,
        closed=closed,
        open=whole - Ranges([(1, closed.to_seq)] if closed.to_seq else ()),
        bundles=tuple(_lost(exports, _states(runs, standings), standings, classes)),
    )


def _claims(runs: Iterable[Run], standings: Iterable[Standing]) -> dict[Class, Ranges]:
    """What each class lays claim to; claims overlap. An audited success is an export, no more."""
    spans: dict[Class, list[tuple[int, int]]] = defaultdict(list)
    for run in runs:
        spans[_OF_HELD[run.held]].append((run.first, run.last))
    for one in standings:
        spans[_OF_STATE.get(one.state, Class.MISSING)].append((one.first, one.last))
    return {one: Ranges(spans[one]) for one in Class}


def _source_end(facts: StreamFacts) -> int | None:
    """Where C1 ends the stream; None without C1. One that it does not know was empty then."""
    if facts.source is None:
        return None
    end = facts.source.end(facts.stream)
    return end.last if end else 0


def _closed(facts: StreamFacts, runs: Iterable[Run], end: int | None) -> Closed:
    """From the beginning on, up to C1 and as far as C2 covers; never into a fork."""
    settled = [one for one in runs if one.is_settled and one.held is not Held.UNSEEN]
    forked = min((one.seq for one in facts.forks), default=None)
    reached = Ranges((one.first, one.last) for one in settled).prefix()
    to_seq = min(one for one in (reached, end, forked and forked - 1) if one is not None)
    if facts.source is not None and to_seq == end:
        return Closed(to_seq=to_seq, before=facts.source.created_at)
    # The next event can be of the same second; hub time never goes back within a stream.
    times = [one.time_last for one in settled if one.last == to_seq]
    before = max(times, default=_no_later(settled, to_seq))
    return Closed(to_seq=to_seq, before=before)


def _no_later(settled: Iterable[Run], to_seq: int) -> int:
    """A time that is not after that of ``to_seq``, where no run ends there."""
    return max((one.time_last for one in settled if one.last < to_seq), default=0)


def _states(runs: Iterable[Run], standings: Iterable[Standing]) -> dict[bytes, Class]:
    found = {one.bundle_id: Class.PARTIAL for one in runs if one.held is Held.UNSEEN}
    found |= {one.bundle_id: _OF_STATE.get(one.state, Class.MISSING) for one in standings}
    return found


def _lost(
    exports: Iterable[Export],
    states: dict[bytes, Class],
    standings: Iterable[Standing],
    classes: dict[Class, Ranges],
) -> list[LostBundle]:
    told: dict[tuple[bytes, int, int], set[str]] = defaultdict(set)
    for export in exports:
        told[export.bundle_id, export.first, export.last].add(export.told_by)
    for one in standings:
        told[one.bundle_id, one.first, one.last].add("import audit")
    found = []
    for (bundle_id, first, last), by in told.items():
        state = states.get(bundle_id, Class.MISSING)
        events = classes[state].within(first, last).count
        if events:
            found.append(
                LostBundle(
                    bundle_id=bundle_id,
                    first=first,
                    last=last,
                    state=state,
                    events=events,
                    told_by=tuple(sorted(by)),
                )
            )
    return sorted(found, key=lambda one: (one.first, one.last, one.bundle_id))
