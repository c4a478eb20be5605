"""Retention beside a hub that others run, and on one of our own: only what may go is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hub import settings as hub_settings
from hub.admission import Gate, VerifiedMsg
from hub.sequencer.committer import Committer
from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.log import HubLog
from support.dags import dag_zones
from support.dags.dag_zones import Site, veen
from support.paths import SUPPORT
from veen import captoken
from veen.client.client import Client
from veen.crypto import SigningKey
from veen.digest import h
from veen.keystore.directory import ClientDir
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.msg import Msg
from veen.system.environment import Runtime

pytestmark = pytest.mark.timeout(900)

SMALL = """
[hub.limits]
max_msg_bytes = 4096
max_chunk_bytes = 8192
[[hub.streams]]
name = "export/readings"
[[hub.retention]]
streams = "export/*"
keep_days = 1
"""
READINGS = "export/readings"
DAY_SEC = 86_400
LATER = {
    "PYTHONPATH": str(SUPPORT / "dags" / "shifted_clock"),
    "VEEN_TEST_AHEAD_SEC": str(30 * DAY_SEC),
}
"""A clock that is far ahead; chunks are due by hub time all the same."""


@pytest.fixture(scope="module")
def site(airflow_database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("retained")
    with dag_zones.zone_pair(folder, airflow_database, SMALL) as (result, _):
        yield result


@pytest.fixture
def z1(site: Site) -> Site:
    site.emit(1)
    measure(site, 40)
    return site


def measure(z1: Site, count: int) -> None:
    """Messages of a stream that may be let go, by one who is nobody's principal."""
    home = ClientDir(z1.home.root / "sensor")
    if not home.keystore.exists():
        home.create(now=int(time.time()), random=os.urandom, passphrase=None)
    token = captoken.issue(
        z1.home.identity("issuer").open(None).id_sign,
        subject_pk=home.open(None).client_id,
        stream_ids=[stream_id(READINGS)],
        ttl=86_400,
    )
    around = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
    url = hub_settings.load(z1.file).url
    with Client.open(home.root, url, runtime=around) as client:
        client.meet()
        client.session.api.authorize(token)
        client.renew(token)
        for _ in client.send_many(READINGS, [bytes(300)] * count, schema=bytes(32)):
            pass


def two_days_later(z1: Site) -> None:
    """The hub's log goes on two days after its last message: only that makes chunks due."""
    z1.stop_hub()
    datadir, settings = DataDir(z1.home.hub), hub_settings.load(z1.file)
    lock = DataDirLock(datadir)
    keys = identity.load(datadir)
    log = HubLog(datadir, keys, settings.limits, settings.streams)
    try:
        committer = Committer(log, Gate(required=False, issuers=settings.issuers))
        (done,) = committer.commit([_message(keys.hub_id)], log.last_ts + 2 * DAY_SEC)
        assert isinstance(done, bytes), done
    finally:
        log.close()
        lock.release()
    z1.start_hub()


def _message(hub_id: bytes) -> VerifiedMsg:
    key, sealed = SigningKey(os.urandom(32)), bytes(40)
    msg = Msg(
        profile_id=DEFAULT_PROFILE.profile_id(),
        label=derive_label(routing_key(hub_id), stream_id(READINGS), 0),
        client_id=key.public,
        client_seq=1,
        prev_ack=0,
        auth_ref=None,
        ct_hash=h(sealed),
        ciphertext=sealed,
    )
    return VerifiedMsg.of(msg.signed(key))


def chunks(z1: Site) -> int:
    return len(list((z1.home.hub / "log").glob("chunk-*.log")))


def pruned(z1: Site) -> int:
    """How many chunks all runs together say that they have let go."""
    return sum(item.summary["pruned"] for item in z1.artefacts("retention"))


def is_whole(z1: Site) -> bool:
    """What is left verifies, and what is gone is in the archive."""
    by = ("--hub-identity", str(z1.home.hub))
    storage = z1.home.zone().storage
    assert storage is not None
    archived = veen("archive", "verify", *storage.arguments(), *by, "--read-all")
    return bool(archived["ok"] and veen("hub", "health", "--hub", str(z1.home.hub))["ready"])


def test_due_chunks_go_and_the_hub_proves_that_nothing_else_is_gone(z1: Site) -> None:
    before = chunks(z1)
    checkpoint, stored = z1.run({"dag_id": "veen_checkpoint"}, {"dag_id": "veen_retention"})
    assert checkpoint.state == "success"
    assert stored.tasks["stop"] == "skipped"
    two_days_later(z1)
    (run,) = z1.run({"dag_id": "veen_retention", "kill": 4}, **LATER)
    assert set(run.tasks.values()) == {"success"}, run.log[-6000:]
    assert run.killed
    assert chunks(z1) < before
    assert z1.artefacts("retention")[0].state == "pruned"
    assert is_whole(z1)


@pytest.mark.long
def test_two_runs_at_once_leave_what_one_run_leaves(z1: Site) -> None:
    before, gone = chunks(z1), pruned(z1)
    assert z1.run({"dag_id": "veen_checkpoint"})[0].state == "success"
    two_days_later(z1)
    both = [z1.begin({"dag_id": "veen_retention"}, **LATER) for _ in range(2)]
    for run in (run for item in both for run in item.ended()):
        assert run.state == "success", run.log[-6000:]
    assert chunks(z1) < before
    assert pruned(z1) - gone == before - chunks(z1)
    assert is_whole(z1)
