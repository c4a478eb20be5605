"""A hub is killed while recorder checkpoints are made: each is whole, and none contradicts."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from typing import Any

import httpx
import pytest

from hub.storage.datadir import DataDir
from hub.storage.identity import read_identity
from support.hub import hub_kills, hub_load, spec_objects
from support.long_form import LONG
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire.api import RecorderCheckpointRequest, RecorderCheckpointResponse

pytestmark = pytest.mark.e2e

TOKEN = "admin"
ADMIN = f"""
[[principals]]
name = "admin"
role = "recorder_admin"
read = ["*"]
token_sha256 = "{sha256(TOKEN.encode()).hexdigest()}"
[[streams]]
name = "record/0"
[[streams]]
name = "record/1"
"""


class Asker:
    """Asks for one document after another; ``given`` are those it was answered with."""

    def __init__(self) -> None:
        self.given: list[RecorderCheckpoint] = []
        self._stop = threading.Event()

    def work(self, url: str) -> None:
        self._stop.clear()
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
            while not self._stop.is_set():
                try:
                    self._ask(http)
                except httpx.TransportError:
                    return

    def stop(self) -> None:
        self._stop.set()

    def _ask(self, http: httpx.Client) -> None:
        body = RecorderCheckpointRequest(profile_id=bytes(32), force=True).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/cbor"}
        reply = http.post("/tooling/recorder_checkpoint", content=body, headers=headers)
        if reply.status_code == httpx.codes.OK:
            self.given.append(RecorderCheckpointResponse.decode(reply.content).checkpoint)
        else:
            assert reply.status_code == httpx.codes.SERVICE_UNAVAILABLE, reply.text


def stored(hub: Any, identity: HubIdentity) -> list[RecorderCheckpoint]:
    """The documents on disk, each whole and after the one before it."""
    paths = sorted((hub.data / "recorder").iterdir())
    assert all(not path.name.startswith(".") for path in paths)
    checkpoints = [RecorderCheckpoint.decode(path.read_bytes()) for path in paths]
    for checkpoint in checkpoints:
        checkpoint.verify(identity)
    for earlier, later in pairwise(checkpoints):
        later.verify_follows(earlier)
        assert earlier.created_at < later.created_at
    return checkpoints


@pytest.mark.timeout(3_000)
def test_a_killed_hub_leaves_whole_documents_and_loses_none_it_gave(
    make_hub: Callable[..., Any],
    wait_until: Callable[..., None],
) -> None:
    hub = hub_kills.start_directly(make_hub(toml=hub_kills.TOML + ADMIN))
    chance, asker = random.Random(40), Asker()
    first = hub.client()
    producers = [
        hub_load.Producer(first.writer(spec_objects.key(f"client {n}"), f"record/{n}"))
        for n in range(2)
    ]
    turns = 100 if LONG else 4
    for turn in range(turns):
        asking = threading.Thread(target=asker.work, args=(hub.url,), daemon=True)
        with hub_load.working(hub, producers):
            asking.start()
            due = len(asker.given) + 1
            wait_until(lambda due=due: len(asker.given) >= due, 30, "a document")
            time.sleep(chance.uniform(0.01, 0.2))
            hub.kill(hub_kills._processes(hub, ("supervisor", "sequencer")[turn % 2]))
        asker.stop()
        asking.join()
        client = hub.start().client()
        hub_kills.verify_log(hub)
        for producer in producers:
            hub_kills.settle(producer, client)
        result = stored(hub, read_identity(DataDir(hub.data)))
        assert all(item in result for item in asker.given)
    assert len(asker.given) >= turns
    assert {end.last_seq > 0 for end in asker.given[-1].ends} == {True}
