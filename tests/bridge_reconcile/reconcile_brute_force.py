"""Reconciliation the slow way: every event of every stream looked at by itself.

Nothing here knows of ranges, runs or the order of facts; it is what a report is measured by.
"""

from __future__ import annotations

from typing import Any

from bridge.reconcile.facts import Facts, Held, Standing, State

ORDER = ("imported", "excluded", "partial", "waiting", "quarantined", "missing")


def as_set(numbers: set[int]) -> dict[str, Any]:
    ranges: list[list[int]] = []
    for n in sorted(numbers):
        if ranges and ranges[-1][1] == n - 1:
            ranges[-1][1] = n
        else:
            ranges.append([n, n])
    return {"events": len(numbers), "ranges": ranges}


def last_words(facts: Facts) -> dict[bytes, Standing]:
    found: dict[bytes, Standing] = {}
    for one in facts.standings:
        known = found.get(one.bundle_id)
        if known is None or _weight(one) > _weight(known):
            found[one.bundle_id] = one
    return {bundle_id: _placed(one, facts) for bundle_id, one in found.items()}


def _weight(one: Standing) -> tuple[bool, int]:
    """What was audited as imported stays so; else the newest word holds."""
    return one.state is State.IMPORTED, one.at


def _placed(one: Standing, facts: Facts) -> Standing:
    if one.first:
        return one
    for other in [*facts.standings, *facts.exports]:
        if other.bundle_id == one.bundle_id and other.first:
            return one._replace(
                hub_id=other.hub_id, stream=other.stream, first=other.first, last=other.last
            )
    return one


def forked_at(facts: Facts) -> set[tuple[bytes, str, int]]:
    roots: dict[tuple[bytes, str, int], set[bytes]] = {}
    for one in [*facts.exports, *facts.imports]:
        if one.root:
            roots.setdefault((one.hub_id, one.stream, one.last), set()).add(one.root)
    for source in facts.sources:
        for end in source.ends:
            if end.last:
                roots.setdefault((source.hub_id, end.stream, end.last), set()).add(end.root)
    return {place for place, found in roots.items() if len(found) > 1} | set(facts.forks)


def stream(facts: Facts, hub_id: bytes, name: str) -> dict[str, Any]:
    """What the report must say of a stream, but for ``target`` and ``bundles``."""
    words = [
        one for one in last_words(facts).values() if (one.hub_id, one.stream) == (hub_id, name)
    ]
    imports = [one for one in facts.imports if (one.hub_id, one.stream) == (hub_id, name)]
    exports = [one for one in facts.exports if (one.hub_id, one.stream) == (hub_id, name)]
    source = next((one for one in facts.sources if one.hub_id == hub_id), None)
    end = None
    if source is not None:
        end = next((one.last for one in source.ends if one.stream == name), 0)
    top = max([end or 0, *(one.last for one in [*words, *imports, *exports])], default=0)
    told = {n: _told(n, words, imports, exports) for n in range(1, top + 1)}
    classes = {
        wanted: {
            n for n, found in told.items() if next(filter(found.__contains__, ORDER), "") == wanted
        }
        for wanted in ORDER
    }
    exported = set().union(*classes.values())
    settled = classes["imported"] | classes["excluded"]
    announced = {n for n in told if any(one.first <= n <= one.last for one in exports)}
    claimed = [one for one in words if one.state is State.IMPORTED]
    closed = _closed(facts, hub_id, name, end)
    copies = {
        n: sum(one.first <= n <= one.last and one.held is not Held.UNSEEN for one in imports)
        for n in told
    }
    return {
        "hub_id": hub_id.hex(),
        "stream": name,
        "horizon": top,
        "exported": as_set(exported),
        "classes": {wanted: as_set(found) for wanted, found in classes.items()},
        "duplicate": as_set({n for n, found in copies.items() if found > 1}),
        "unannounced": as_set(settled - announced),
        "unfulfilled": as_set(
            {n for n in told if any(one.first <= n <= one.last for one in claimed)} - settled
        ),
        "untold": as_set(set(told) - exported),
        "closed_to": closed,
        "open": as_set({n for n in told if n > closed}),
    }


def _told(n: int, words: Any, imports: Any, exports: Any) -> set[str]:
    found = {_HELD[one.held] for one in imports if one.first <= n <= one.last}
    for one in words:
        if one.first <= n <= one.last:
            found.add("missing" if one.state is State.IMPORTED else one.state.value)
    if any(one.first <= n <= one.last for one in exports):
        found.add("missing")
    return found


_HELD = {Held.IMPORTED: "imported", Held.EXCLUDED: "excluded", Held.UNSEEN: "partial"}


def _closed(facts: Facts, hub_id: bytes, name: str, end: int | None) -> int:
    covered = {one.stream: one.last for one in facts.target.ends} if facts.target else None
    there = {
        one.first + step
        for one in facts.imports
        if (one.hub_id, one.stream) == (hub_id, name) and one.held is not Held.UNSEEN
        for step in range(one.last - one.first + 1)
        if covered is None or one.target_first + step <= covered.get(one.target, 0)
    }
    forks = {seq for hub, stream, seq in forked_at(facts) if (hub, stream) == (hub_id, name)}
    k = 0
    while k + 1 in there and k + 1 not in forks and (end is None or k + 1 <= end):
        k += 1
    return k


def ledgers(facts: Facts) -> dict[str, Any]:
    found: dict[str, Any] = {"unknown": {}, "repeated": set(), "forked": set()}
    for bridge in {one.bridge_id for one in facts.entries}:
        mine = {one for one in facts.entries if one.bridge_id == bridge}
        numbers = {one.n for one in mine}
        found["unknown"][bridge.hex()] = as_set(set(range(1, max(numbers) + 1)) - numbers)["ranges"]
        for n in numbers:
            if len({one.entry_hash for one in mine if one.n == n}) > 1:
                found["repeated"].add((bridge.hex(), n))
            before = {one.entry_hash for one in mine if one.n == n - 1}
            if before and any(one.prev not in before for one in mine if one.n == n):
                found["forked"].add((bridge.hex(), n))
    return found
