"""Bridge step: a query of Z1 crosses with its digest, and Z2 runs it again (Query API 9.1)."""

from __future__ import annotations

import time
from typing import Any, Final

from cli.selftest.bridge_side import IMPORTED, IMPORTED_QUERIES, ORDERS
from cli.selftest.bridge_world import BridgeWorld
from cli.selftest.step import Step, expect
from recorder.index import imports, rebuild
from recorder.index.engine import EngineLimits
from recorder.index.follower import Follower
from recorder.index.home import IndexHome
from recorder.index.imports import Imports
from recorder.index.opener import opening
from recorder.index.writer import writing
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import ResultDigest
from recorder.query.package_facts import REQUESTS, RESULT, RESULTS, SUBMITTED
from recorder.service.engine import InlineEngine
from recorder.service.replay_beyond import Beyond, read_beyond
from recorder.service.replay_recorded import Wanted, find
from recorder.service.replaying import Missing, ReplayVerdict, replay_recorded
from veen import json_body
from veen.overlay.body import AnyItem
from veen.record_event import SCHEMA, RecordEvent

_RESULT_ID: Final = f"r-{'0' * 31}1"
_QUERY: Final = {
    "version": 1,
    "scope": [ORDERS],
    "filter": {},
    "projection": ["subject_id", "event_type", "payload.number"],
    "evidence": {"mode": "full"},
}


def query_replay(world: BridgeWorld) -> None:
    """Descriptor and digest are imported; the range that is missing is named, then all agrees."""
    world.record(6)
    first, second, third = world.export()
    descriptor, digest = _answered(world)
    expect("events of the answer", digest.event_count, 6)
    _record(world, REQUESTS, SUBMITTED, descriptor.document())
    _record(world, RESULTS, RESULT, digest.document())
    world.checkpoint()
    world.bring(world.carry(first, third, *world.export()))
    before = _replayed(world)
    expect("a replay of half of it", (before.matches, before.missing),
           (False, (Missing(ORDERS, 3, 6),)))  # fmt: skip
    world.bring(world.carry(second))
    after = _replayed(world)
    expect(f"a replay of all of it ({after.told})", after.matches, True)
    expect("the digest", after.rows_hash, digest.rows_hash)


def _answered(world: BridgeWorld) -> tuple[Descriptor, ResultDigest]:
    """By the engine of the query service, over an index of Z1."""
    home = IndexHome(world.root / "z1-index")
    descriptor = normalise(_QUERY, query_id_if_missing="q-1")
    with world.z1.acting("bridge") as client, home.locked():
        session = client.session
        generation = rebuild.create(home, world.z1.identity.hub_id)
        with (
            opening(session.identity.readers(), session.limits, 0) as opener,
            writing(generation) as writer,
        ):
            follower = Follower(client, writer, opener, frozenset([ORDERS]))
            while follower.round():
                pass
    engine = InlineEngine(
        home,
        world.root / "z1-results",
        EngineLimits(),
        hub=lambda: world.z1.identity,
        clock_ms=lambda: time.time_ns() // 1_000_000,
    )
    return descriptor, engine.run(descriptor, _RESULT_ID, engine.checkpoint(descriptor))


def _record(world: BridgeWorld, stream: str, event_type: str, payload: dict[str, Any]) -> None:
    """As the service does it; sealed to the bridge, which discloses what it exports."""
    event = RecordEvent(
        subject_id="query@z1",
        principal_id=world.z1.keys["query"],
        event_type=event_type,
        event_time=time.time_ns() // 1_000_000,
        origin="query@z1",
        payload=AnyItem(json_body.encode_value(payload)),
    )
    with world.z1.acting("query") as client:
        to = world.z1.recipient("bridge")
        for _ in client.send_many(stream, [event.encode()], schema=SCHEMA, recipient=to):
            pass


def _replayed(world: BridgeWorld) -> ReplayVerdict:
    """Over what was imported alone: events, descriptor and digest."""
    home = IndexHome(world.root / "z2-index")
    wanted = Imports().joined([IMPORTED, *IMPORTED_QUERIES], world.trust.hubs)
    imports.keep(home, wanted)
    with (
        world.z2.acting("reader") as reader,
        home.locked(),
        writing(rebuild.create(home, world.z2.identity.hub_id)) as writer,
    ):
        wanted.follower(reader, writer).round()

    def beyond() -> Beyond:
        with world.z2.acting("reader") as reader:
            return read_beyond(reader, home)

    return replay_recorded(home, find(home, Wanted("result_id", _RESULT_ID, None)), beyond)


STEPS: Final = (Step("query-replay", query_replay),)
