"""Checkpoints and anchors by command, at a real hub: made, proven, and refused after tampering."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.storage.datadir import DataDir
from hub.storage.retention import Rule, plan_retention, prune
from recorder.index.tables import IndexHome
from recorder.service.follower_report import Reporter
from recorder.service.runner import Following
from support.hub import hub_process
from support.paths import ROOT
from veen import identity_store
from veen.client.client import Client
from veen.client.credentials import Principal
from veen.client.transport import RetryPolicy
from veen.crypto import SigningKey
from veen.digest import h
from veen.identity_store import read_signed
from veen.keystore.directory import ClientDir
from veen.limits import Limits
from veen.wire.api import RegisterRequest, StreamsResponse

pytestmark = pytest.mark.e2e

STREAM = "record/app/orders"
NEXT = SigningKey(h(b"the key after"))
HUB = """
admission = "open"
reads = "open"
[[principals]]
name = "recorder"
role = "recorder_admin"
public_key = "{key}"
read = ["*"]
"""
RECORDER = """
zone = "test"
[hub]
url = "{url}"
hub_id = "{hub_id}"
client = "client"
principal = "recorder"
[[streams]]
name = "record/app/orders"
event_types = ["order.placed"]
[checkpoint]
every_minutes = 1
every_events = 2
[objects]
url = "file://{folder}/objects"
[anchor]
{anchor}
"""


class World:
    """One hub, one recorder, in one folder."""

    created: Any
    anchored: Any

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        home = ClientDir(folder / "client")
        identity = home.create(now=int(time.time()), random=os.urandom, passphrase=None)
        toml = HUB.format(key=identity.client_id.hex()) + more
        self.hub = hub_process.configured(folder / "hub", toml)
        self.hub.start()
        self.hub_id = self._with_client(lambda client: client.meet().hub.hub_id.hex())
        self.configure("")

    def configure(self, anchor: str) -> None:
        text = RECORDER.format(
            url=self.hub.url, hub_id=self.hub_id, folder=self.folder, anchor=anchor
        )
        (self.folder / "recorder.toml").write_text(text)

    def record(self, *bodies: bytes) -> None:
        def send(client: Client) -> None:
            transport = client.session.api.transport
            transport.post("/tooling/streams", RegisterRequest(name=STREAM), StreamsResponse)
            for _ in client.send_many(STREAM, bodies):
                pass

        self._with_client(send)

    def record_as_another(self, *bodies: bytes) -> None:
        """By someone who remembers nothing of the hub."""
        other = ClientDir(self.folder / "other")
        other.create(now=int(time.time()), random=os.urandom, passphrase=None)
        with Client.open(other.root, self.hub.url) as client:
            for _ in client.send_many(STREAM, bodies):
                pass

    def veen(self, *words: object, code: int = 0) -> Any:
        command = [sys.executable, "-m", "cli.main", *map(str, words), "--json"]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    def _with_client(self, do: Callable[[Client], Any]) -> Any:
        with Client.open(
            self.folder / "client", self.hub.url,
            retry_policy=RetryPolicy(attempts=4, timeout_sec=10),
            credentials=(reader := _Reader()),
        ) as client:  # fmt: skip
            session = client.session
            around = session.runtime
            reader.inner = Principal("recorder", session.identity.client, around.clock, os.urandom)
            return do(client)


class _Reader:
    inner: Any = None

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        return self.inner.headers(method, url, body) if self.inner else {}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """With two events, one checkpoint over them, and an anchor of that."""
    result = World(tmp_path_factory.mktemp("world"))
    try:
        result.record(b"one", b"two")
        result.created = result.veen("recorder", "checkpoint", "create")
        result.anchored = result.veen("anchor", "publish")
        yield result
    finally:
        result.hub.destroy()


def retained(world: World) -> Path:
    return max((world.folder / "checkpoints" / "checkpoints").iterdir())


def test_made_kept_anchored_and_proven(world: World) -> None:
    created = world.created
    ends = {item["name"]: item["last_seq"] for item in created["streams"]}
    assert (created["is_new"], ends[STREAM]) == (True, 2)
    assert world.veen("recorder", "checkpoint", "create")["is_new"] is False
    (anchored,) = world.anchored["anchors"]
    assert anchored["anchor"] == "file-1.cbor"
    world.record(b"three")
    proven = world.veen("recorder", "checkpoint", "verify")
    held = {item["name"]: (item["last_seq"], item["head_seq"]) for item in proven["held_by_hub"]}
    assert held[STREAM] == (2, 3)
    assert [item["kind"] for item in proven["anchors"]] == ["file"]
    result = world.veen(
        "anchor", "verify", "--checkpoint", retained(world), "--hub-id", world.hub_id
    )
    assert result["proven"][0]["root"] == created["log_root"]
    listed = world.veen("recorder", "checkpoint", "list")["checkpoints"]
    assert [(item["checkpoint_id"], item["anchors"]) for item in listed] == [
        (created["checkpoint_id"], 1)
    ]
    assert world.veen("anchor", "list")["status"]["waiting"] == 0
    stored = {path.name: path for path in (world.folder / "objects").rglob("*.cbor")}
    (at_hub,) = (world.hub.data / "recorder").iterdir()
    assert sorted(stored) == sorted([at_hub.name, "file-1.cbor"])
    assert stored[at_hub.name].read_bytes() == at_hub.read_bytes() == retained(world).read_bytes()


def test_an_anchor_is_refused_where_its_proof_was_touched(world: World, tmp_path: Path) -> None:
    checkpoint, ledger = retained(world), world.folder / "anchors.ledger"
    copy = tmp_path / "copy.ledger"
    copy.write_bytes(ledger.read_bytes().replace(b'"index":1', b'"index":2'))
    words = ("anchor", "verify", "--checkpoint", checkpoint)
    assert "entry 1" in world.veen(*words, "--ledger", copy, code=3)["detail"]
    alone = Path(shutil.copy(checkpoint, tmp_path / "alone.cbor"))
    assert world.veen("anchor", "verify", "--checkpoint", alone, code=4)["code"] == "REFUSED"
    assert world.veen(*words, "--hub-id", "ab" * 32, code=3)["code"] == "UNTRUSTED"
    whole = alone.read_bytes()
    alone.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert world.veen("anchor", "verify", "--checkpoint", alone, code=3)["code"] == "UNTRUSTED"


def retired(world: World, folder: Path) -> Path:
    """The hub's identity after a rotation that was before any checkpoint."""
    before = read_signed(world.hub.data).identity
    (seed,) = (world.hub.data / "keys").glob("*.key")
    after = before.rotated(SigningKey(seed.read_bytes()), NEXT.public, before.current.valid_from, 0)
    path = folder / "newer.cbor"
    path.write_bytes(after.encode())
    path.with_suffix(".sig").write_bytes(after.signature_by(NEXT))
    return path


@pytest.mark.parametrize("way", ["given", "remembered"])
def test_h02_a_checkpoint_of_a_retired_key_is_refused(
    world: World, tmp_path: Path, way: str
) -> None:
    """Whatever the identity says that is kept beside it, or pinned: a newer one decides."""
    newer = retired(world, tmp_path)
    identity_store.remember(tmp_path / "known", read_signed(newer))
    trust = {"given": ("--hub-identity", newer), "remembered": ("--known-hubs", tmp_path / "known")}
    for words in (
        ("recorder", "checkpoint", "verify", "--offline"),
        ("anchor", "verify", "--checkpoint", retained(world)),
    ):
        assert world.veen(*words)["hub_identity_known"] is True
        result = world.veen(*words, *trust[way], code=3)
        assert "is not a key of the hub at that time" in result["detail"]


def test_h02_a_checkpoint_without_any_identity_is_unproven(world: World, tmp_path: Path) -> None:
    """It may be of a key that had retired: what is not known is not a yes."""
    alone = Path(shutil.copy(retained(world), tmp_path / "alone.cbor"))
    (ref,) = (world.folder / "checkpoints" / "anchors").rglob("file-1.cbor")
    words = ("anchor", "verify", "--checkpoint", alone, "--anchor", ref,
             "--ledger", world.folder / "anchors.ledger")  # fmt: skip
    elsewhere = ("--config", tmp_path / "no.toml")
    assert world.veen(*words, *elsewhere, code=6)["hub_identity_known"] is False
    identity = ("--hub-identity", world.hub.data)
    assert world.veen(*words, *elsewhere, *identity)["hub_identity_known"] is True
    # The recorder's settings lead to the identity that its client has pinned.
    assert world.veen(*words)["hub_identity_known"] is True


def test_a_time_stamp_is_proven_without_the_authority(
    world: World, authority: Any, serve: Callable[..., Any]
) -> None:
    for name in ("signer", "middle", "root"):
        (world.folder / f"{name}.pem").write_bytes(authority.pem(name))
    pems = '["signer.pem", "middle.pem", "root.pem"]'
    kind = f'kind = "rfc3161"\ntsa_policy = "1.2.3.4.1"\ntsa_certificates = {pems}\n'
    world.configure(kind + 'tsa_url = "http://127.0.0.1:1/tsr"')
    down = world.veen("anchor", "publish", code=2)
    assert "cannot be reached" in down["detail"]
    status = world.veen("anchor", "list")["status"]
    assert (status["failed"], status["attempts"]) == (1, 1)
    world.configure(kind + f'tsa_url = "{serve(authority).url}"')
    assert world.veen("anchor", "publish")["anchors"][0]["anchor"] == "rfc3161-1.cbor"
    world.configure("")
    words = [
        item
        for name in ("signer", "middle", "root")
        for item in ("--tsa-certificate", f"{name}.pem")
    ]
    proven = world.veen("anchor", "verify", "--checkpoint", retained(world), *words)["proven"]
    assert [item["witness"] for item in proven] == ["CN=Test TSA"]


def test_runs_until_it_is_asked_to_stop(world: World) -> None:
    command = [sys.executable, "-m", "cli.main", "recorder", "checkpoint", "run", "--poll-sec", "1"]
    process = subprocess.Popen(
        [*command, "--json"], cwd=world.folder, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        world.record(b"four", b"five", b"six")
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
    created, anchored = lines
    assert (created["event"], anchored["event"]) == ("checkpoint", "anchor")
    assert created["checkpoint_id"] == anchored["checkpoint_id"]
    assert world.veen("anchor", "list")["status"]["late_checkpoints"] == 0


def test_a_history_that_was_put_back_is_refused(world: World) -> None:
    """The hub loses its last events and writes others: below a checkpoint, that shows."""
    world.hub.stop()
    shutil.copytree(world.hub.data, world.folder / "old")
    world.hub.start()
    world.record(b"seven", b"eight")
    world.veen("recorder", "checkpoint", "create")
    world.hub.stop()
    shutil.rmtree(world.hub.data)
    (world.folder / "old").rename(world.hub.data)
    world.hub.start()
    behind = world.veen("recorder", "checkpoint", "verify", code=3)
    assert STREAM in behind["detail"]
    refused = world.veen("recorder", "checkpoint", "create", code=3)
    assert "checkpoint is refused" in refused["detail"]
    world.record_as_another(b"SEVEN", b"EIGHT", b"NINE")
    forked = world.veen("recorder", "checkpoint", "verify", code=3)
    assert STREAM in forked["detail"]
    assert "does not extend the log that it signed" in forked["detail"]
    world.veen("recorder", "checkpoint", "verify", "--offline")


def test_says_that_the_hub_is_down(world: World) -> None:
    world.hub.stop()
    assert (
        world.veen("recorder", "checkpoint", "create", "--timeout-ms", 300, code=2)["ok"] is False
    )
    assert world.veen("recorder", "checkpoint", "latest")["ok"]


@pytest.mark.parametrize("how", ["epoch_sec = 3600", "pad_block = 256"])
def test_a_recorder_stream_with_epochs_or_padding_is_refused(tmp_path: Path, how: str) -> None:
    world = World(tmp_path, f'[[streams]]\nname = "record/rolling"\n{how}\n')
    try:
        world.record(b"one", b"two")
        for words in (("create",), ("run", "--poll-sec", "1")):
            detail = world.veen("recorder", "checkpoint", *words, code=4)["detail"]
            assert "stream record/rolling: expected epoch_sec = 0" in detail
        assert not (world.folder / "checkpoints" / "checkpoints").exists()
    finally:
        world.hub.destroy()


def followed(client: Client, index: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the query service, until it has said something."""
    following = Following(client, IndexHome(index), 0, Reporter(index / "report.json"))
    following.start()
    deadline = time.monotonic() + 30
    while not caplog.records and time.monotonic() < deadline:
        time.sleep(0.01)
    following.stop()


def test_events_that_the_hub_has_taken_away_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, "[limits]\nmax_checkpoint_interval = 2\n")
    try:
        world.record(*(b"%d" % number for number in range(7)))
        world.veen("recorder", "checkpoint", "create")
        assert "pruned" not in world.veen("recorder", "checkpoint", "verify")
        world.hub.stop()
        hub, later = DataDir(world.hub.data), int(time.time()) + 10**7
        chunks = plan_retention(hub, [Rule("record/*", 1)], [], later)
        prune(hub, chunks, limits=Limits(max_checkpoint_interval=2), move_to=None, now=later)
        world.hub.start()
        detail = world.veen("recorder", "checkpoint", "verify")["pruned"]
        assert detail == [{"stream": STREAM, "first_seq": 7}]
        world._with_client(lambda client: followed(client, tmp_path / "index", caplog))
        assert f"{STREAM} is kept long term" in caplog.text
    finally:
        world.hub.destroy()
