"""Reconciliation the slow way: every event of every stream looked at by itself.

Nothing here knows of ranges, runs or the order of facts; it is what a report is measured by.
"""

from __future__ import annotations

from typing import Any

from bridge.reconcile.facts import (
    BundleFact,
    BundleState,
    Export,
    Import,
    ImportedFact,
    ReconcileFacts,
)

ORDER = ("imported", "excluded", "partial", "waiting", "quarantined", "missing")


def as_set(numbers: set[int]) -> dict[str, Any]:
    ranges: list[list[int]] = []
    for n in sorted(numbers):
        if ranges and ranges[-1][1] == n - 1:
            ranges[-1][1] = n
        else:
            ranges.append([n, n])
    return {"events": len(numbers), "ranges": ranges}


def last_words(facts: ReconcileFacts) -> dict[bytes, BundleFact]:
    result: dict[bytes, BundleFact] = {}
    for bundle_fact in facts.bundle_facts:
        known = result.get(bundle_fact.bundle_id)
        if known is None or _weight(bundle_fact) > _weight(known):
            result[bundle_fact.bundle_id] = bundle_fact
    return {bundle_id: _placed(item, facts) for bundle_id, item in result.items()}


def _weight(bundle: BundleFact) -> tuple[bool, int]:
    """What was audited as imported stays so; else the newest word holds."""
    return bundle.state is BundleState.IMPORTED, bundle.at


def _placed(bundle: BundleFact, facts: ReconcileFacts) -> BundleFact:
    if bundle.first:
        return bundle
    others: list[BundleFact | Export] = [*facts.bundle_facts, *facts.exports]
    for other in others:
        if other.bundle_id == bundle.bundle_id and other.first:
            return bundle._replace(
                hub_id=other.hub_id, stream=other.stream, first=other.first, last=other.last
            )
    return bundle


def forked_at(facts: ReconcileFacts) -> set[tuple[bytes, str, int]]:
    roots: dict[tuple[bytes, str, int], set[bytes]] = {}
    ranges: list[Export | Import] = [*facts.exports, *facts.imports]
    for export in ranges:
        if export.root:
            roots.setdefault((export.hub_id, export.stream, export.last), set()).add(export.root)
    for source in facts.sources:
        for end in source.ends:
            if end.last:
                roots.setdefault((source.hub_id, end.stream, end.last), set()).add(end.root)
    return {place for place, result in roots.items() if len(result) > 1} | set(facts.forks)


def stream(facts: ReconcileFacts, hub_id: bytes, name: str) -> dict[str, Any]:
    """What the report must say of a stream, but for ``target`` and ``bundles``."""
    words = [
        last_word
        for last_word in last_words(facts).values()
        if (last_word.hub_id, last_word.stream) == (hub_id, name)
    ]
    imports = [
        import_ for import_ in facts.imports if (import_.hub_id, import_.stream) == (hub_id, name)
    ]
    exports = [
        export for export in facts.exports if (export.hub_id, export.stream) == (hub_id, name)
    ]
    source = next((source for source in facts.sources if source.hub_id == hub_id), None)
    end = None
    if source is not None:
        end = next((end.last for end in source.ends if end.stream == name), 0)
    known = [*(word.last for word in words), *(item.last for item in imports)]
    top = max([end or 0, *known, *(export.last for export in exports)])
    detail = {n: _describe(n, words, imports, exports) for n in range(1, top + 1)}
    classes = {
        expected: {
            n
            for n, result in detail.items()
            if next(filter(result.__contains__, ORDER), "") == expected
        }
        for expected in ORDER
    }
    exported = set().union(*classes.values())
    settled = classes["imported"] | classes["excluded"]
    announced = {n for n in detail if any(export.first <= n <= export.last for export in exports)}
    claimed = [word for word in words if word.state is BundleState.IMPORTED]
    closed = _closed(facts, hub_id, name, end)
    copies = {
        n: sum(
            import_.first <= n <= import_.last and import_.held is not ImportedFact.UNSEEN
            for import_ in imports
        )
        for n in detail
    }
    return {
        "hub_id": hub_id.hex(),
        "stream": name,
        "horizon": top,
        "exported": as_set(exported),
        "classes": {expected: as_set(result) for expected, result in classes.items()},
        "duplicate": as_set({n for n, result in copies.items() if result > 1}),
        "unannounced": as_set(settled - announced),
        "unfulfilled": as_set(
            {n for n in detail if any(item.first <= n <= item.last for item in claimed)} - settled
        ),
        "unreported": as_set(set(detail) - exported),
        "closed_to": closed,
        "open": as_set({n for n in detail if n > closed}),
    }


def _describe(n: int, words: Any, imports: Any, exports: Any) -> set[str]:
    result = {_HELD[import_.held] for import_ in imports if import_.first <= n <= import_.last}
    for word in words:
        if word.first <= n <= word.last:
            result.add("missing" if word.state is BundleState.IMPORTED else word.state.value)
    if any(export.first <= n <= export.last for export in exports):
        result.add("missing")
    return result


_HELD = {
    ImportedFact.IMPORTED: "imported",
    ImportedFact.EXCLUDED: "excluded",
    ImportedFact.UNSEEN: "partial",
}


def _closed(facts: ReconcileFacts, hub_id: bytes, name: str, end: int | None) -> int:
    covered = {end.stream: end.last for end in facts.target.ends} if facts.target else None
    there = {
        import_.first + step
        for import_ in facts.imports
        if (import_.hub_id, import_.stream) == (hub_id, name)
        and import_.held is not ImportedFact.UNSEEN
        for step in range(import_.last - import_.first + 1)
        if covered is None or import_.target_first + step <= covered.get(import_.target, 0)
    }
    forks = {seq for hub, stream, seq in forked_at(facts) if (hub, stream) == (hub_id, name)}
    k = 0
    while k + 1 in there and k + 1 not in forks and (end is None or k + 1 <= end):
        k += 1
    return k


def ledgers(facts: ReconcileFacts) -> dict[str, Any]:
    result: dict[str, Any] = {"unknown": {}, "repeated": set(), "forked": set()}
    for bridge in {entry.bridge_id for entry in facts.entries}:
        mine = {entry for entry in facts.entries if entry.bridge_id == bridge}
        numbers = {item.n for item in mine}
        result["unknown"][bridge.hex()] = as_set(set(range(1, max(numbers) + 1)) - numbers)[
            "ranges"
        ]
        for n in numbers:
            if len({item.entry_hash for item in mine if item.n == n}) > 1:
                result["repeated"].add((bridge.hex(), n))
            before = {item.entry_hash for item in mine if item.n == n - 1}
            if before and any(item.prev not in before for item in mine if item.n == n):
                result["forked"].add((bridge.hex(), n))
    return result
