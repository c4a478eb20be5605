"""Query steps: rows, hashes and evidence, made a second time by hand (Query API 5, 6)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from cli.selftest.query_world import AUTH, HTTP, QueryWorld, row_of
from cli.selftest.recorded import Recorded
from cli.selftest.step import Step, expect, expect_that
from veen.digest import h, ht, u64be

_RATE: Final = 0.5
_MOST: Final = 7


def evidence_none(world: QueryWorld) -> None:
    """Rows and rows_hash are those of what was recorded; evidence says that there is none."""
    found = world.submit()
    digest = _expect_rows(world, found)
    expect("evidence_hash", digest["evidence_hash"], _hash({"mode": "none"}))
    searched = [(one["stream"], one["from_seq"], one["to_seq"]) for one in digest["searched"]]
    expect("what was searched", searched, [(AUTH, 1, 12), (HTTP, 1, 40)])


def evidence_spot(world: QueryWorld) -> None:
    """Verified are just the events that the lot falls on, which nobody can choose."""
    found = world.submit(evidence={"mode": "spot", "sample_rate": _RATE})
    digest = _expect_rows(world, found)
    root = bytes.fromhex(digest["checkpoint"]["log_root"])
    drawn = [
        one
        for index, one in enumerate(_matching(world))
        if int.from_bytes(_lot(digest["query_id"], root, index), "big") < _RATE * 2**64
    ]
    expect("evidence_hash", digest["evidence_hash"], _hash(_summary(digest, drawn)))


def evidence_full(world: QueryWorld) -> None:
    """Every event behind the rows is verified, and listed with the root it was verified against."""
    found = world.submit(evidence={"mode": "full"})
    digest = _expect_rows(world, found)
    expect("evidence_hash", digest["evidence_hash"], _hash(_summary(digest, _matching(world))))


def aggregates(world: QueryWorld) -> None:
    """Counts and sums by group are those that a child could add up."""
    wanted = {"group_by": ["origin"], "metrics": ["count", "sum(payload.number)"]}
    found = world.submit(scope=[HTTP], filter={}, aggregate=wanted, evidence={"mode": "full"})
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for one in world.of(HTTP):
        counts[one.observed.origin] += 1
        sums[one.observed.origin] += one.observed.payload["number"]
    rows = [
        {"origin": origin, "count": counts[origin], "sum(payload.number)": sums[origin]}
        for origin in sorted(counts)
    ]
    expect("rows", found["rows"], rows)
    expect("rows_hash", found["result_digest"]["rows_hash"], _hash(rows))
    expect("event_count", found["result_digest"]["event_count"], len(world.of(HTTP)))


def pages(world: QueryWorld) -> None:
    """Pages of any size are the same rows in the same order, under the same digest."""
    digest = world.submit(filter={})["result_digest"]
    due = [row_of(one) for one in world.of(HTTP, AUTH)]
    rows: list[Any] = []
    more = True
    while more and len(rows) <= len(due):
        limit = world.world.random.randint(1, _MOST)
        path = f"result/{digest['result_id']}?offset={len(rows)}&limit={limit}"
        page = world.ask("GET", path).json()
        expect("the digest of a page", page["result_digest"], digest)
        rows += page["rows"]
        more = page["page"]["has_more"]
        expect_that(bool(page["rows"]) or not more, "a page has rows while there are more")
    expect("the rows of all pages", rows, due)
    expect("rows_hash", digest["rows_hash"], _hash(rows))


def _expect_rows(world: QueryWorld, found: dict[str, Any]) -> dict[str, Any]:
    digest: dict[str, Any] = found["result_digest"]
    rows = [row_of(one) for one in _matching(world)]
    expect("rows", found["rows"], rows)
    told = (digest["row_count"], digest["rows_hash"], digest["hub_id"])
    expect("the digest", told, (len(rows), _hash(rows), world.world.hub_id.hex()))
    return digest


def _matching(world: QueryWorld) -> list[Recorded]:
    return [one for one in world.of(HTTP, AUTH) if one.observed.subject_id == "user:2"]


def _summary(digest: dict[str, Any], verified: list[Recorded]) -> dict[str, Any]:
    roots = {one["stream"]: one["mmr_root"] for one in digest["searched"]}
    return {
        "query_id": digest["query_id"],
        "result_id": digest["result_id"],
        **digest["evidence_policy"],
        "verified": [
            {
                "receipt_id": f"rcpt-{one.leaf.hex()}",
                "mmr_root": roots[one.stream],
                "hub_id": digest["hub_id"],
            }
            for one in verified
        ],
    }


def _lot(query_id: str, log_root: bytes, index: int) -> bytes:
    return ht("veen/query-sample", query_id.encode(), log_root, u64be(index))[:8]


def _hash(value: Any) -> str:
    """Of canonical JSON: all keys and texts here are ASCII, and the numbers are whole."""
    return h(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hex()


STEPS: Final = (
    Step("evidence-none", evidence_none),
    Step("evidence-spot", evidence_spot),
    Step("evidence-full", evidence_full),
    Step("aggregates", aggregates),
    Step("pages", pages),
)
