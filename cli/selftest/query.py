"""Query steps: rows, hashes and evidence recomputed independently (Query API 5, 6), access and
tampering.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import httpx

from cli.selftest.recorder_data import RecordedSample, an_event, record
from cli.selftest.samples import SelftestStep, Unexpected, expect, expect_that, naive_root
from cli.selftest.world import ServiceUnderTest, World, a_world
from cli.selftest.zones import SelftestZone
from recorder import timestamp
from recorder.index import tables
from recorder.index.tables import IndexHome
from recorder.query.package import Package, PackageFacts, PackageTrust
from recorder.query.package_verify import ClaimOutcome, check_bytes
from recorder.service.rerun import ReplayVerdict, replay
from recorder.stream_map import AUDIT
from veen.crypto import SigningKey
from veen.digest import h, ht, u64be
from veen.errors import Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint

HTTP: Final = "record/app/http"
AUTH: Final = "record/app/auth"
HARMED: Final = "record/app/harmed"
SECRET: Final = "record/secret"  # noqa: S105 - the name of a stream
STREAMS: Final = {
    HTTP: ("http.request",),
    AUTH: ("auth.login",),
    HARMED: ("harm.done",),
    SECRET: ("secret.read",),
}
_COUNTS: Final = {HTTP: 40, AUTH: 12, HARMED: 6, SECRET: 2}
_PEOPLE: Final = {
    "asker": ("submitter", "record/app/*"),
    "other": ("submitter", "record/app/*"),
    "auditor": ("auditor", "record/app/*"),
    "clerk": ("submitter", "record/query/*"),
}
"""Who has a token at the service: the role of each, and its scope."""

_WAIT_SEC: Final = 60.0
_PAUSE_SEC: Final = 0.02
_RATE: Final = 0.5
_MOST: Final = 7


def identity_of(name: str) -> bytes:
    """The VEEN identity of a requester."""
    return SigningKey(h(f"query {name}".encode())).public


class QueryWorld:
    """A world with a query service, which is started by the first step that needs it."""

    def __init__(self, world: World, service: ServiceUnderTest, tokens: Mapping[str, str]) -> None:
        self.world = world
        self.service = service
        self.zone: SelftestZone
        self.recorded: list[RecordedSample] = []
        self._tokens = tokens

    def begin(self, step: str) -> QueryWorld:
        self.world.begin(step)
        self.world.running()
        if not self.recorded:
            self._record()
        if not self.service.is_running():
            self._start()
        return self

    def ask(self, method: str, path: str, who: str = "asker", json: Any = None) -> httpx.Response:
        """Send a request with the token of a requester; without one if the name is unknown."""
        token = self._tokens.get(who)
        return httpx.request(
            method, f"{self.service.url}/api/v1/query/{path}", json=json, trust_env=False,
            timeout=self.world.timeout_sec + _WAIT_SEC,
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )  # fmt: skip

    def answer(self, descriptor: dict[str, Any], who: str = "asker") -> httpx.Response:
        """The final response to a query, after polling if needed."""
        reply = self.ask("POST", "submit", who, descriptor)
        if reply.status_code != httpx.codes.ACCEPTED:
            return reply
        result_id = reply.json()["result_id"]
        wait_until(lambda: self._has_ended(result_id, who), "a query that ends")
        return self.ask("GET", f"result/{result_id}", who)

    def submit(self, who: str = "asker", **changes: Any) -> dict[str, Any]:
        """The response to a query that succeeds."""
        reply = self.answer(a_query(**changes), who)
        expect(f"status of {reply.text[:200]}", reply.status_code, httpx.codes.OK)
        document: dict[str, Any] = reply.json()
        return document

    def package(self, result_id: str) -> bytes:
        """Fetch the package once its digest is in the index."""

        def there() -> bytes | None:
            reply = self.ask("GET", f"proof/{result_id}")
            if reply.status_code == httpx.codes.TOO_EARLY:
                return None
            expect(f"status of {reply.text[:200]}", reply.status_code, httpx.codes.OK)
            return reply.content

        package: bytes = wait_until(there, "a proof package")
        return package

    def checkpoint(self) -> RecorderCheckpoint:
        """Create a checkpoint, and wait until the service covers it."""
        made = self.world.api().recorder_checkpoint(self.zone.settings.profile_id())

        def reached() -> bool:
            reply = httpx.get(f"{self.service.url}/readyz", trust_env=False)
            is_ready = reply.status_code == httpx.codes.OK
            return is_ready and reply.json()["checkpoint_id"] == made.checkpoint_id.hex()

        wait_until(reached, "an index that reaches the checkpoint")
        return made

    def of(self, *streams: str) -> list[RecordedSample]:
        """The events of the streams, in the order of rows."""
        mine = [item for item in self.recorded if item.stream in streams]
        return sorted(mine, key=lambda item: item.order)

    def _has_ended(self, result_id: str, who: str) -> bool:
        status = self.ask("GET", f"status/{result_id}", who).json()["status"]
        return status in ("completed", "failed")

    def _record(self) -> None:
        folder = self.world.root / "query-zone"
        more = self._query_settings()
        self.zone = SelftestZone(self.world, folder, STREAMS, client="recorder", more=more)
        self.zone.register()
        chance = self.world.random
        self.recorded = record(
            self.zone,
            [
                an_event(chance, STREAMS[stream][0], number)
                for stream, count in _COUNTS.items()
                for number in range(count)
            ],
        )

    def _start(self) -> None:
        own = [
            stream.name
            for stream in self.zone.settings.streams.streams
            if stream.name not in STREAMS
        ]
        token = self.zone.token(
            "recorder", [item for item in own if item.startswith("record/query/")]
        )
        self.world.api().authorize(token)
        cap = self.zone.folder / "recorder.cap"
        cap.write_bytes(token.encode())
        self.service.start(self.zone.config, cap)
        self.checkpoint()

    def _query_settings(self) -> str:
        people = "".join(
            f'[[query.principals]]\nname = "{name}"\nroles = ["{role}"]\n'
            f'token_sha256 = "{h(self._tokens[name].encode()).hex()}"\n'
            f'public_key = "{identity_of(name).hex()}"\n'
            f'scopes = ["{scope}"]\n'
            for name, (role, scope) in _PEOPLE.items()
        )
        return (
            f'[index]\npath = "index"\n[query]\nlisten = "127.0.0.1:{self.service.port}"\n'
            f'engine = "inline"\nresults = "results"\nworkers = 1\n{people}'
        )


@contextmanager
def a_query_world(
    seed: int, count: int | None, timeout_sec: float, environment: Mapping[str, str]
) -> Iterator[QueryWorld]:
    with a_world(seed, count, timeout_sec, environment) as world:
        service = ServiceUnderTest(world.root, environment)
        tokens = {name: world.random.randbytes(16).hex() for name in _PEOPLE}
        try:
            yield QueryWorld(world, service, tokens)
        finally:
            service.end()


def a_query(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "scope": [HTTP, AUTH],
        "filter": {"subject_id": "user:2"},
        "projection": [
            "stream", "hub_commit_seq", "hub_commit_time", "event_time", "origin",
            "payload.number", "payload.nothing", "receipt_id",
        ],
        "evidence": {"mode": "none"},
    }  # fmt: skip
    return usual | changes


def row_of(sample: RecordedSample) -> dict[str, Any]:
    """The expected row of an event under the projection above."""
    return {
        "stream": sample.stream,
        "hub_commit_seq": sample.seq,
        "hub_commit_time": timestamp.render(sample.hub_ts * 1_000),
        "event_time": timestamp.render(sample.observed.event_time or 0),
        "origin": sample.observed.origin,
        "payload.number": sample.observed.payload["number"],
        "payload.nothing": None,
        "receipt_id": f"rcpt-{sample.leaf.hex()}",
    }


def wait_until(there: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + _WAIT_SEC
    while not (result := there()):
        if time.monotonic() > deadline:
            raise Unexpected(f"expected {what} within {_WAIT_SEC:.0f} s")
        time.sleep(_PAUSE_SEC)
    return result


def evidence_none(world: QueryWorld) -> None:
    """Rows and rows_hash match the recorded events; the evidence is none."""
    page = world.submit()
    digest = _expect_rows(world, page)
    expect("evidence_hash", digest["evidence_hash"], _hash({"mode": "none"}))
    searched = [(item["stream"], item["from_seq"], item["to_seq"]) for item in digest["searched"]]
    expect("what was searched", searched, [(AUTH, 1, 12), (HTTP, 1, 40)])


def evidence_spot(world: QueryWorld) -> None:
    """Exactly the events selected by the deterministic sample are verified."""
    page = world.submit(evidence={"mode": "spot", "sample_rate": _RATE})
    digest = _expect_rows(world, page)
    root = bytes.fromhex(digest["checkpoint"]["log_root"])
    drawn = [
        sample
        for index, sample in enumerate(_matching(world))
        if int.from_bytes(_lot(digest["query_id"], root, index), "big") < _RATE * 2**64
    ]
    expect("evidence_hash", digest["evidence_hash"], _hash(_summary(digest, drawn)))


def evidence_full(world: QueryWorld) -> None:
    """Every event of the rows is verified, and listed with its root."""
    page = world.submit(evidence={"mode": "full"})
    digest = _expect_rows(world, page)
    expect("evidence_hash", digest["evidence_hash"], _hash(_summary(digest, _matching(world))))


def aggregates(world: QueryWorld) -> None:
    """Counts and sums by group match those computed directly."""
    expected = {"group_by": ["origin"], "metrics": ["count", "sum(payload.number)"]}
    page = world.submit(scope=[HTTP], filter={}, aggregate=expected, evidence={"mode": "full"})
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for item in world.of(HTTP):
        counts[item.observed.origin] += 1
        sums[item.observed.origin] += item.observed.payload["number"]
    rows = [
        {"origin": origin, "count": counts[origin], "sum(payload.number)": sums[origin]}
        for origin in sorted(counts)
    ]
    expect("rows", page["rows"], rows)
    expect("rows_hash", page["result_digest"]["rows_hash"], _hash(rows))
    expect("event_count", page["result_digest"]["event_count"], len(world.of(HTTP)))


def pages(world: QueryWorld) -> None:
    """Pages of any size give the same rows in the same order and the same digest."""
    digest = world.submit(filter={})["result_digest"]
    due = [row_of(item) for item in world.of(HTTP, AUTH)]
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


def _expect_rows(world: QueryWorld, document: dict[str, Any]) -> dict[str, Any]:
    digest: dict[str, Any] = document["result_digest"]
    rows = [row_of(sample) for sample in _matching(world)]
    expect("rows", document["rows"], rows)
    detail = (digest["row_count"], digest["rows_hash"], digest["hub_id"])
    expect("the digest", detail, (len(rows), _hash(rows), world.world.hub_id.hex()))
    return digest


def _matching(world: QueryWorld) -> list[RecordedSample]:
    return [item for item in world.of(HTTP, AUTH) if item.observed.subject_id == "user:2"]


def _summary(digest: dict[str, Any], verified: list[RecordedSample]) -> dict[str, Any]:
    roots = {item["stream"]: item["mmr_root"] for item in digest["searched"]}
    return {
        "query_id": digest["query_id"],
        "result_id": digest["result_id"],
        **digest["evidence_policy"],
        "verified": [
            {
                "receipt_id": f"rcpt-{sample.leaf.hex()}",
                "mmr_root": roots[sample.stream],
                "hub_id": digest["hub_id"],
            }
            for sample in verified
        ],
    }


def _lot(query_id: str, log_root: bytes, index: int) -> bytes:
    return ht("veen/query-sample", query_id.encode(), log_root, u64be(index))[:8]


def _hash(value: Any) -> str:
    """The hash of canonical JSON; here all texts are ASCII and all numbers are integers."""
    return h(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hex()


RESULT_STEPS: Final = (
    SelftestStep("evidence-none", evidence_none),
    SelftestStep("evidence-spot", evidence_spot),
    SelftestStep("evidence-full", evidence_full),
    SelftestStep("aggregates", aggregates),
    SelftestStep("pages", pages),
)


def scopes(world: QueryWorld) -> None:
    """A principal sees only its own results, and cannot learn of others."""
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
    """A package is proven offline with hub_id and recorder_id; any change in it is refused."""
    digest = world.submit(evidence={"mode": "full"})["result_digest"]
    raw = world.package(digest["result_id"])
    verdict = check_bytes(raw, _trust(world))
    expect(f"outcome ({verdict.reason})", verdict.outcome, ClaimOutcome.PROVEN)
    for what, change in _CHANGES.items():
        document = json.loads(raw)
        change(document)
        altered = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        expect_that(_fails(altered, _trust(world)), f"a package with {what} fails")
    _expect_unproven(raw, _trust(world))
    for what, other in _others(world).items():
        expect_that(_fails(raw, other), f"a package of another {what} fails")


def _expect_unproven(raw: bytes, trust: PackageTrust) -> None:
    """Expect that a package without the records of its query and result is unproven."""
    document = json.loads(raw) | {"request": None, "result": None}
    bare = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    for what, given, by in (
        ("records", bare, trust),
        ("a recorder's name", raw, replace(trust, recorder_ids=frozenset())),
        ("a known hub identity", raw, replace(trust, identity=None)),
    ):
        expect(f"outcome without {what}", check_bytes(given, by).outcome, ClaimOutcome.UNPROVEN)


def _trust(world: QueryWorld) -> PackageTrust:
    recorder = world.world.people["recorder"]
    return PackageTrust(
        hub_id=world.world.hub_id,
        recorder_ids=frozenset([recorder]),
        identity=world.world.api().status().identity(),
    )


def _others(world: QueryWorld) -> dict[str, PackageTrust]:
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
    item = document["witnesses"][0]
    item["body_key"] = h(bytes.fromhex(item["body_key"])).hex()


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
    """A tampered row in the index fails the query, and no row is returned."""
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
    """A replay gives the same digest, and detects a result that omits a row."""
    digest = world.submit(evidence={"mode": "full"})["result_digest"]
    facts = PackageFacts(Package.decode(world.package(digest["result_id"])), _trust(world))
    for item in digest["searched"]:
        leaves = [each.leaf for each in world.of(item["stream"])]
        detail = (item["from_seq"], item["to_seq"], item["mmr_root"])
        expect("a range", detail, (1, len(leaves), naive_root(leaves).hex()))
    expect("a replay", _replayed(world, facts, {}).matches, True)
    for what, changes in (
        ("a digest of fewer rows", {"row_count": digest["row_count"] - 1}),
        ("a digest of other rows", {"rows_hash": h(b"other rows").hex()}),
        ("a digest with other evidence", {"evidence_hash": h(b"other evidence").hex()}),
    ):
        verdict = _replayed(world, facts, changes)
        expect(what, (verdict.matches, verdict.field), (False, next(iter(changes))))


def _replayed(world: QueryWorld, facts: PackageFacts, changes: dict[str, Any]) -> ReplayVerdict:
    digest = replace(facts.digest, **changes)
    return replay(_index(world), facts.descriptor, digest, facts.checkpoint, facts.hub)


def audit(world: QueryWorld) -> None:
    """Requests, results and refusals are in the log, with principal and reason."""
    digest = world.submit(meta={"reason": "self-test"})["result_digest"]
    world.ask("GET", f"result/{digest['result_id']}", "other")

    def recorded() -> dict[str, dict[str, Any]] | None:
        world.checkpoint()
        entries = _audits(world)
        mine = [entry for entry in entries if digest["query_id"] in entry["resource_identifier"]]
        refused = [entry for entry in entries if entry["metadata"]["requester"] == "other"
                   and digest["result_id"] in entry["resource_identifier"]]  # fmt: skip
        return {"mine": mine[0], "refused": refused[0]} if mine and refused else None

    audits = wait_until(recorded, "audit entries of a query and of a refusal")
    detail = (audits["mine"]["purpose_code"], audits["mine"]["result_digest"])
    due = h(json.dumps(digest, sort_keys=True, separators=(",", ":")).encode()).hex()
    expect("the entry of the query", detail, ("self-test", due))
    expect("the refusal", audits["refused"]["metadata"]["outcome"], "query_not_found")


def _audits(world: QueryWorld) -> list[dict[str, Any]]:
    """The audit records, queried from the service itself."""
    asked = world.submit("clerk", scope=[AUDIT], filter={}, projection=["payload"])
    return [item["payload"] for item in asked["rows"]]


def _index(world: QueryWorld) -> IndexHome:
    return IndexHome(world.zone.settings.index)


def _fails(raw: bytes, trust: PackageTrust) -> bool:
    try:
        return bool(check_bytes(raw, trust).failed)
    except Untrusted:
        return True


def _expect_refused(what: str, reply: httpx.Response, status: int, code: str) -> None:
    document = reply.json() if reply.content else {}
    expect(what, (reply.status_code, document.get("error_code")), (status, code))


TRUST_STEPS: Final = (
    SelftestStep("scopes", scopes),
    SelftestStep("proof-package", proof_package),
    SelftestStep("tampered-index", tampered_index),
    SelftestStep("replays", replays),
    SelftestStep("audit", audit),
)
