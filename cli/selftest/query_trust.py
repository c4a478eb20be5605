"""Query steps: who may ask, what is left in the log, and what no tampering gets past."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import httpx

from cli.selftest import naive
from cli.selftest.query_world import (
    HARMED,
    HTTP,
    SECRET,
    QueryWorld,
    a_query,
    wait_until,
)
from cli.selftest.step import Step, expect, expect_that
from recorder.index import tables
from recorder.index.home import IndexHome
from recorder.query.package import Package
from recorder.query.package_check import check_bytes
from recorder.query.package_facts import Facts
from recorder.query.trust import Trust
from recorder.query.verdict import Outcome
from recorder.service.replaying import ReplayVerdict, replay
from recorder.stream_map import AUDIT
from veen.digest import h
from veen.errors import Untrusted


def scopes(world: QueryWorld) -> None:
    """Nobody sees more than is theirs, nor learns what there is beside it."""
    mine = world.submit()["result_digest"]
    for what, who, path, status, code in (
        ("nobody", "nobody", f"status/{mine['result_id']}", 401, "unauthorized"),
        ("another's result", "other", f"result/{mine['result_id']}", 404, "query_not_found"),
        ("another's proof", "other", f"proof/{mine['result_id']}", 404, "query_not_found"),
        ("an unknown one", "asker", f"result/r-{'0' * 32}", 404, "query_not_found"),
    ):
        _expect_refused(what, world.ask("GET", path, who), status, code)
    for what, stream, status, code in (
        ("a forbidden stream", SECRET, 403, "forbidden_scope"),
        ("an unknown stream", "record/app/nothing", 403, "forbidden_scope"),
        ("all streams", "record/app/*", 400, "invalid_query_descriptor"),
    ):
        asked = world.ask("POST", "submit", json=a_query(scope=[HTTP, stream]))
        _expect_refused(what, asked, status, code)
    seen = world.ask("GET", f"result/{mine['result_id']}", "auditor")
    expect("status for an auditor", seen.status_code, httpx.codes.OK)


def proof_package(world: QueryWorld) -> None:
    """Proven offline with the names of hub and recorder; a change anywhere in it is refused."""
    digest = world.submit(evidence={"mode": "full"})["result_digest"]
    raw = world.package(digest["result_id"])
    verdict = check_bytes(raw, _trust(world))
    expect(f"outcome ({verdict.reason})", verdict.outcome, Outcome.PROVEN)
    for what, change in _CHANGES.items():
        document = json.loads(raw)
        change(document)
        altered = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        expect_that(_fails(altered, _trust(world)), f"a package with {what} fails")
    _expect_unproven(raw, _trust(world))
    for what, other in _others(world).items():
        expect_that(_fails(raw, other), f"a package of another {what} fails")


def _expect_unproven(raw: bytes, trust: Trust) -> None:
    """A package without the records of its query and result has failed nothing, proves nothing."""
    document = json.loads(raw) | {"request": None, "result": None}
    bare = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    for what, given, by in (
        ("records", bare, trust),
        ("a recorder's name", raw, replace(trust, recorder_ids=frozenset())),
        ("a known hub identity", raw, replace(trust, identity=None)),
    ):
        expect(f"outcome without {what}", check_bytes(given, by).outcome, Outcome.UNPROVEN)


def _trust(world: QueryWorld) -> Trust:
    recorder = world.world.people["recorder"]
    return Trust(
        hub_id=world.world.hub_id,
        recorder_ids=frozenset([recorder]),
        identity=world.world.api().status().identity(),
    )


def _others(world: QueryWorld) -> dict[str, Trust]:
    other = world.world.random.randbytes(32)
    return {
        "hub": replace(_trust(world), hub_id=other),
        "recorder": replace(_trust(world), recorder_ids=frozenset([other])),
    }


def _another_row(document: dict[str, Any]) -> None:
    document["rows"]["whole"][0]["payload.number"] += 1


def _a_missing_row(document: dict[str, Any]) -> None:
    del document["rows"]["whole"][-1]


def _another_digest(document: dict[str, Any]) -> None:
    document["digest"]["row_count"] += 1


def _another_question(document: dict[str, Any]) -> None:
    document["descriptor"]["filter"]["subject_id"] = "user:3"


def _another_key(document: dict[str, Any]) -> None:
    one = document["witnesses"][0]
    one["body_key"] = h(bytes.fromhex(one["body_key"])).hex()


def _a_missing_witness(document: dict[str, Any]) -> None:
    del document["witnesses"][0]


_CHANGES: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "another row": _another_row,
    "a missing row": _a_missing_row,
    "another digest": _another_digest,
    "another question": _another_question,
    "another key of a body": _another_key,
    "a missing witness": _a_missing_witness,
}


def tampered_index(world: QueryWorld) -> None:
    """A row that is not what was recorded fails the query, and nothing is given out."""
    asked = a_query(scope=[HARMED], filter={}, evidence={"mode": "full"})
    expect("status before", world.answer(asked).status_code, 200)
    with tables.connected(_index(world).current(), writable=True) as db, tables.transaction(db):
        done = db.execute(
            "UPDATE events SET subject_id = 'user:forged' WHERE event_type = 'harm.done' "
            "AND subject_id = 'user:2'"
        )
    expect("rows that were changed", done.rowcount, 1)
    asked["query_id"] = f"q-{world.world.random.randbytes(16).hex()}"
    reply = world.answer(asked)
    _expect_refused("evidence that does not hold", reply, 500, "execution_failed")
    expect_that("user:forged" not in reply.text, "the answer holds nothing of the forged row")
    recorded = world.ask("GET", f"descriptor/{asked['query_id']}")
    expect("status of what was asked", recorded.status_code, httpx.codes.OK)


def replays(world: QueryWorld) -> None:
    """Whoever reads the ranges again finds the same digest, and one that omits a row out."""
    digest = world.submit(evidence={"mode": "full"})["result_digest"]
    facts = Facts(Package.decode(world.package(digest["result_id"])), _trust(world))
    for one in digest["searched"]:
        leaves = [each.leaf for each in world.of(one["stream"])]
        told = (one["from_seq"], one["to_seq"], one["mmr_root"])
        expect("a range", told, (1, len(leaves), naive.root(leaves).hex()))
    expect("a replay", _replayed(world, facts, {}).matches, True)
    for what, changes in (
        ("a digest of fewer rows", {"row_count": digest["row_count"] - 1}),
        ("a digest of other rows", {"rows_hash": h(b"other rows").hex()}),
        ("a digest with other evidence", {"evidence_hash": h(b"other evidence").hex()}),
    ):
        verdict = _replayed(world, facts, changes)
        expect(what, (verdict.matches, verdict.field), (False, next(iter(changes))))


def _replayed(world: QueryWorld, facts: Facts, changes: dict[str, Any]) -> ReplayVerdict:
    digest = replace(facts.digest, **changes)
    return replay(_index(world), facts.descriptor, digest, facts.checkpoint, facts.hub)


def audit(world: QueryWorld) -> None:
    """What was asked, answered and refused is in the log, by whom and why."""
    digest = world.submit(meta={"reason": "self-test"})["result_digest"]
    world.ask("GET", f"result/{digest['result_id']}", "other")

    def recorded() -> dict[str, dict[str, Any]] | None:
        world.checkpoint()
        entries = _audits(world)
        mine = [one for one in entries if digest["query_id"] in one["resource_identifier"]]
        refused = [one for one in entries if one["metadata"]["requester"] == "other"
                   and digest["result_id"] in one["resource_identifier"]]  # fmt: skip
        return {"mine": mine[0], "refused": refused[0]} if mine and refused else None

    found = wait_until(recorded, "audit entries of a query and of a refusal")
    told = (found["mine"]["purpose_code"], found["mine"]["result_digest"])
    due = h(json.dumps(digest, sort_keys=True, separators=(",", ":")).encode()).hex()
    expect("the entry of the query", told, ("self-test", due))
    expect("the refusal", found["refused"]["metadata"]["outcome"], "query_not_found")


def _audits(world: QueryWorld) -> list[dict[str, Any]]:
    """As the service itself tells it to whoever may ask for that."""
    asked = world.submit("clerk", scope=[AUDIT], filter={}, projection=["payload"])
    return [one["payload"] for one in asked["rows"]]


def _index(world: QueryWorld) -> IndexHome:
    return IndexHome(world.zone.settings.index)


def _fails(raw: bytes, trust: Trust) -> bool:
    try:
        return bool(check_bytes(raw, trust).failed)
    except Untrusted:
        return True


def _expect_refused(what: str, reply: httpx.Response, status: int, code: str) -> None:
    found = reply.json() if reply.content else {}
    expect(what, (reply.status_code, found.get("error_code")), (status, code))


STEPS: Final = (
    Step("scopes", scopes),
    Step("proof-package", proof_package),
    Step("tampered-index", tampered_index),
    Step("replays", replays),
    Step("audit", audit),
)
