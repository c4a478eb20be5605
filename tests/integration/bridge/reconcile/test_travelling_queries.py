"""A query of the other zone whose descriptor and digest crossed like its events: it is replayed
here by its name, with nothing copied by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.connect import open_bridge_client
from recorder.index import rebuild
from recorder.index.engine import EngineLimits
from recorder.index.follower import Follower, opening
from recorder.index.tables import IndexHome
from recorder.index.writer import writing
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import ResultDigest
from recorder.service.execute import InlineEngine
from recorder.stream_map import REQUESTS, RESULTS
from support.bridge.reconcile_real_history import RealHistory
from support.bridge.reconcile_real_sides import AROUND, HASTY, Side, hub_toml
from support.hub.hub_process import hub_in

EVENTS, RESULT_ID = 155, f"r-{'0' * 32}"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp("sides")
    with (
        hub_in(folder / "z1-hub", hub_toml(folder / "z1")) as online,
        hub_in(folder / "z2-hub") as offline,
    ):
        yield Side(folder / "z1", online, "online"), Side(folder / "z2", offline, "offline")


def answered(online: Side, stream: str, folder: Path) -> tuple[Descriptor, ResultDigest]:
    """By the engine of Z1's query service, over an index of Z1's log."""
    query = {"scope": [stream], "filter": {}, "projection": ["payload"], "version": 1}
    descriptor = normalise(query | {"evidence": {"mode": "full"}}, query_id_if_missing="q-7")
    settings, home = online.settings([{"source": stream}]), IndexHome(folder / "index")
    with (
        open_bridge_client(
            settings.hub, settings.bridge, runtime=AROUND, retry_policy=HASTY
        ) as client,
        home.locked(),
        opening(client.session.identity.readers(), client.session.limits, 0) as opener,
        writing(rebuild.create(home, online.identity.hub_id)) as writer,
    ):
        client.meet()
        follower = Follower(client, writer, opener, frozenset([stream]))
        while follower.round():
            pass
    engine = InlineEngine(
        home, folder / "results", EngineLimits(), hub=lambda: online.identity, clock_ms=lambda: 1
    )
    return descriptor, engine.run(descriptor, RESULT_ID, engine.checkpoint(descriptor))


def recorder_of(offline: Side, folder: Path) -> Path:
    """The settings of Z2's recorder, whose identity opens imports."""
    config = folder / "recorder.toml"
    config.write_text(f"""
zone = "z2"
[hub]
url = "{offline.hub.url}"
hub_id = "{offline.identity.hub_id.hex()}"
client = "{offline.folder}/reader"
reader = "{offline.folder}/reader/identity_card.pub"
[index]
path = "index"
""")
    return config


def test_a_query_that_crossed_is_replayed_by_its_name(
    sides: tuple[Side, Side], tmp_path: Path, run_veen: Callable[..., Any]
) -> None:
    events = RealHistory(EVENTS, *sides, tmp_path / "events")
    events.record("config.changed", [{"number": item} for item in range(9)])
    events.export()
    first, *middle, last = events.bundles
    descriptor, digest = answered(sides[0], events.stream, tmp_path / "z1")
    assert digest.event_count == 9
    crossed = []
    documents = (
        (REQUESTS, "query.submitted", descriptor.document()),
        (RESULTS, "query.result", digest.document()),
    )
    for at, (stream, kind, document) in enumerate(documents, 1):
        history = RealHistory(EVENTS + at, *sides, tmp_path / f"crossed-{at}", stream)
        # H07: an event that names the query and is no descriptor or digest keeps nobody from it.
        history.record(kind, [{"query_id": "q-7", "result_id": RESULT_ID}, document])
        history.export()
        history.bring(history.bundles, [], [])
        crossed.append(f"import/{stream}")
    events.bring([first], [], [])
    config = ("--config", str(recorder_of(sides[1], tmp_path)))
    crossed.append(f"import/{events.stream.removeprefix('export/')}")
    targets = [word for item in crossed for word in ("--stream", item)]
    trust = ("--trust", str(events.folder / "trust"))
    taken = ("recorder", "index", "imports", *config, *targets, *trust)

    result = run_veen(*taken)
    assert result.returncode == 0, result.stderr
    lacking = run_veen("query", "replay", "--query-id", "q-7", *config, "--json")
    assert lacking.returncode == 3, lacking.stderr
    assert json.loads(lacking.stdout)["missing"] == [
        {"stream": events.stream, "from_seq": first.last + 1, "to_seq": 9}
    ]
    events.bring([*middle, last], [], [])
    assert run_veen(*taken).returncode == 0
    words = ("--result-id", RESULT_ID, "--hub-id", sides[0].identity.hub_id.hex())
    whole = run_veen("query", "replay", *words, *config, "--record", "--json")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    document = json.loads(whole.stdout)
    assert (document["verdict"], document["rows_hash"]) == ("matches", digest.rows_hash)
    assert document["record_event"]["stream"] == "record/query/replays"

    unknown = run_veen("query", "replay", "--query-id", "q-8", *config)
    assert unknown.returncode != 0
    assert "no digest of query_id q-8 was imported" in unknown.stderr
    both = run_veen("query", "replay", "--query-id", "q-7", "--result-id", RESULT_ID, *config)
    assert "exactly one of" in both.stderr
