"""Make query.json, the golden vectors of queries and results, or check it with --check.

Nothing here uses the library under test: JSON, hashes and answers are those of the oracle in
tests/support, and the normalised descriptors are written out by hand from docs/query-format.md.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from vector_file import write_vectors

from support.recorder import query_oracle

TARGET = Path(__file__).with_name("query.json")
SOURCE = "Made by make_query.py from docs/query-format.md"
LOG_ROOT = sha256(b"a log root").digest()
NO_FILTER = {
    "subject_id": None,
    "event_type": None,
    "origin": None,
    "principal_id": None,
    "time": {"from": None, "to": None},
}
ALL = [
    "stream", "hub_commit_seq", "hub_commit_time", "subject_id", "principal_id", "event_type",
    "event_time", "origin", "payload", "receipt_id",
]  # fmt: skip


def descriptors() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What a client sends, and what it is once it is normalised."""
    least = {
        "query_id": "q-least", "scope": ["record/app"], "filter": {}, "projection": ["*"],
        "evidence": {"mode": "none"},
    }  # fmt: skip
    most: dict[str, Any] = {
        "query_id": "q-most",
        "version": 1,
        "scope": ["record/users", "record/app/http"],
        "filter": {
            "subject_id": "user:123",
            "event_type": ["login", "http.request", "login"],
            "principal_id": "ab" * 32,
            "time": {"from": "2025-11-18T00:00:00Z", "to": "2025-11-18T23:59:59.9Z"},
        },
        "projection": ["payload.*", "payload.a\\.b.0", "receipt_id"],
        "aggregate": {"metrics": ["count", "avg(payload.ms)", "min(event_time)"]},
        "evidence": {"mode": "spot", "sample_rate": 0.1},
        "meta": {"reason": "\u20ac", "\U0001f600": 1, "\ufb01": 1e21},
    }
    return [
        (least, least | {"version": 1, "filter": NO_FILTER, "projection": ALL}),
        (
            most,
            most
            | {
                "scope": ["record/app/http", "record/users"],
                "filter": {
                    **most["filter"],
                    "event_type": ["http.request", "login"],
                    "origin": None,
                    "time": {"from": "2025-11-18T00:00:00.000Z", "to": "2025-11-18T23:59:59.900Z"},
                },
                "projection": ["payload", "payload.a\\.b.0", "receipt_id"],
                "aggregate": {
                    "group_by": [],
                    "metrics": ["count", "avg(payload.ms)", "min(event_time)"],
                },
            },
        ),
        (
            least | {"query_id": "q-full", "evidence": {"mode": "full", "sample_rate": None}},
            least
            | {
                "query_id": "q-full", "version": 1, "filter": NO_FILTER, "projection": ALL,
                "evidence": {"mode": "full"},
            },
        ),
    ]  # fmt: skip


def event(number: int, payload: Any, **changes: Any) -> dict[str, Any]:
    return {
        "stream": "record/app", "seq": number, "hub_ts": 1_700_000_000 + number // 2,
        "leaf_hash": sha256(f"leaf {number}".encode()).hexdigest(), "is_event": True,
        "subject_id": "user:1", "principal_id": "cd" * 32, "event_type": "login",
        "event_time": 1_699_999_999_000 + number, "origin": "api-1", "payload": payload,
    } | changes  # fmt: skip


EVENTS = [
    event(1, {"ms": 0.1, "n": 2**53}),
    event(2, {"ms": 0.2, "n": 9007199254740992.0}),
    event(3, {"ms": 0.3, "n": 2**64 - 1}, origin="api-2"),
    event(4, {"ms": 1e308, "n": -(2**64)}),
    event(5, {"ms": 1e308, "n": True}, origin="api-2"),
    event(6, {"ms": "7", "n": None}),
    event(7, [1, {"n": 5}], is_event=False),
    event(1, {"list": [1, -0.0, 1e-7]}, stream="record/a", hub_ts=1_700_000_001),
]
QUERIES: list[dict[str, Any]] = [
    {"projection": ["*"]},
    {"projection": ["payload.n", "payload.list.2", "receipt_id"]},
    {"filter": {"origin": "api-2"}, "projection": ["subject_id", "event_time"]},
    {
        "filter": {"time": {"from": "2023-11-14T22:13:20.500Z", "to": "2023-11-14T22:13:21.000Z"}},
        "projection": ["stream", "hub_commit_seq", "hub_commit_time"],
    },
    {
        "aggregate": {
            "metrics": [
                "count", "min(payload.n)", "max(payload.n)", "sum(payload.n)", "avg(payload.n)",
                "sum(payload.ms)", "avg(payload.ms)", "sum(event_time)", "avg(event_time)",
            ]
        }
    },
    {"aggregate": {"group_by": ["payload.n", "origin"], "metrics": ["count", "sum(payload.ms)"]}},
    {"filter": {"subject_id": "nobody"}, "aggregate": {"metrics": ["count", "max(event_time)"]}},
]  # fmt: skip


def chain(rows: list[Any]) -> str:
    value = bytes(32)
    for row in rows:
        hashed = sha256(query_oracle.jcs(row).encode()).digest()
        value = sha256(b"veen/query-rows\x00" + value + hashed).digest()
    return value.hex()


def answers() -> list[dict[str, Any]]:
    least = {
        "query_id": "q-1", "scope": ["record/a", "record/app"], "filter": {},
        "projection": ["origin"], "evidence": {"mode": "none"},
    }  # fmt: skip
    result = []
    for changes in QUERIES:
        query = least | changes
        rows = query_oracle.answer(query, EVENTS)
        result.append(
            {
                "query": query, "rows": query_oracle.jcs(rows),
                "rows_hash": query_oracle.digest(rows), "rows_chain": chain(rows),
            }
        )  # fmt: skip
    return result


def summary(policy: dict[str, Any], count: int) -> dict[str, Any]:
    head = {"query_id": "q-1", "result_id": "r-1", **policy}
    lines = [
        {"receipt_id": f"rcpt-{i}", "mmr_root": f"{i:064x}", "hub_id": "ef" * 32}
        for i in range(count)
    ]
    return policy if policy["mode"] == "none" else {**head, "verified": lines}


def summaries() -> list[dict[str, Any]]:
    policies: list[dict[str, Any]] = [
        {"mode": "none"}, {"mode": "full"}, {"mode": "spot", "sample_rate": 0.5},
    ]  # fmt: skip
    return [
        {"policy": policy, "count": n, "hash": query_oracle.digest(summary(policy, n))}
        for policy in policies
        for n in (0, 2)
    ]


def picks(rate: float) -> list[int]:
    return [i for i in range(200) if query_oracle.sampled("q-1", LOG_ROOT, rate, i)]


def generate() -> str:
    document = {
        "source": SOURCE,
        "descriptors": [
            {"sent": sent, "normalised": query_oracle.jcs(due), "digest": query_oracle.digest(due)}
            for sent, due in descriptors()
        ],
        "events": EVENTS,
        "answers": answers(),
        "summaries": summaries(),
        "sampling": {
            "query_id": "q-1",
            "log_root": LOG_ROOT.hex(),
            "picks": [{"rate": rate, "rows": picks(rate)} for rate in (0.01, 0.1, 0.5)],
        },
    }
    return json.dumps(document, indent=1) + "\n"


if __name__ == "__main__":
    write_vectors(TARGET, generate())
