"""Core steps: a hub that gets a new key, is killed, is watched, and is checked byte by byte."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from cli import metrics
from cli.selftest.step import Step, Unexpected, expect, expect_that
from cli.selftest.world import World
from hub.fsck import verify as fsck
from hub.storage import identity
from hub.storage.datadir import Lock
from hub.storage.index import last_hub_ts
from veen.errors import Code, Failure
from veen.msg import Msg
from veen.receipt import Receipt
from veen.tooling import HealthResponse

_OVERLAP_SEC: Final = 3_600
_METRICS: Final = (
    "veen_submit_ok_total",
    "veen_submit_err_total/E.SIG",
    "veen_verify_latency_ms",
    "veen_commit_latency_ms",
    "veen_end_to_end_latency_ms",
    "veen_queue_depth",
    "veen_rate_limited_total",
    "veen_checkpoint_interval",
)
_LOGGED: Final = (
    "label", "client_id_prefix", "stream_seq", "leaf_hash_prefix", "bytes_in", "bytes_out",
    "verify_ms", "commit_ms",
)  # fmt: skip


def key_rotation(world: World) -> None:
    """Both keys witness the overlap, old receipts stay good, and a client goes along."""
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        before = client.send(world.stream, b"before", capability=token).receipt
        world.hub.stop()
        _rotate(world)
        world.hub.start()
        after = client.send(world.stream, b"after", capability=token).receipt
        pairs = list(client.read(world.stream))
        followed = client.session.hub
    hub = world.api().status().identity()
    expect("the log", [one.receipt for one in pairs], [before, after])
    expect("hub_id", hub.hub_id, world.hub_id)
    old, new = hub.hub_keys[-2].hub_pk, hub.current.hub_pk
    for what, receipt, signer, other in (("old", before, old, new), ("new", after, new, old)):
        expect_that(receipt.is_signed_by(signer), f"the {what} receipt is by the {what} key")
        expect_that(not receipt.is_signed_by(other), f"the {what} receipt is by no other key")
    expect("the key that the client knows", followed.current.hub_pk, new)
    found = world.api().checkpoint(world.labels().at(0), 2)
    expect_that(found.is_signed_by(new), "the new key signs the checkpoint of the overlap")
    expect_that(found.is_witnessed_by(new), "the new key witnesses the checkpoint")
    expect_that(found.is_witnessed_by(old), "the old key witnesses the checkpoint of the overlap")


def _rotate(world: World) -> None:
    """As ``veen hub rotate-key`` does it."""
    lock = Lock(world.hub.datadir)
    try:
        now = max(int(time.time()), last_hub_ts(world.hub.datadir))
        identity.rotate(world.hub.datadir, world.random.randbytes, now, _OVERLAP_SEC)
    finally:
        lock.release()


def restart(world: World) -> None:
    """Killed in the middle of its work, it has all that it gave a receipt for."""
    writer = world.writer()
    messages: list[tuple[Msg, Receipt]] = []
    for _ in range(5):
        msg = writer.msg()
        messages.append((msg, writer.accepted(msg)))
    world.hub.end()
    world.hub.start()
    for msg, receipt in messages:
        kept = world.api().receipt(receipt.label, receipt.stream_seq)
        expect(f"receipt {receipt.stream_seq} after the kill", kept, receipt)
        writer.known(msg, receipt)
    writer.accepted()


def health_and_metrics(world: World) -> None:
    writer = world.writer()
    receipt = writer.accepted()
    bad = writer.msg().signed(world.key())
    writer.refused(Failure.SIG_INVALID, bad)
    health = HealthResponse.decode(world.probe.get("/healthz").body)
    told = (health.ok, health.last_stream_seq, health.last_mmr_root)
    expect("health", told, (True, receipt.stream_seq, receipt.mmr_root))
    first = _counters(world)
    missing = [name for name in _METRICS if name not in first]
    expect("metrics that are missing", missing, [])
    writer.accepted()
    second = _counters(world)
    for name, more in (("veen_submit_ok_total", 1), ("veen_submit_err_total/E.SIG", 0)):
        expect(f"growth of {name}", second[name] - first[name], more)
    _expect_logged(world, receipt)


def _counters(world: World) -> dict[str, Any]:
    return metrics.summary(world.probe.get("/metrics").body.decode())


def _expect_logged(world: World, receipt: Receipt) -> None:
    """A line of JSON for what was taken, and one for what was refused (OBS0.2)."""
    lines = [json.loads(line) for line in world.hub.log.read_text().splitlines() if line[:1] == "{"]
    (taken,) = (one for one in lines if _is_of(one, receipt))
    expect("fields of the log that are missing", [one for one in _LOGGED if one not in taken], [])
    expect_that(any(one.get("code") == Code.SIG.value for one in lines), "a refusal is logged")


def _is_of(line: dict[str, Any], receipt: Receipt) -> bool:
    place = (receipt.label.hex(), receipt.stream_seq)
    return (line.get("label"), line.get("stream_seq")) == place


def hub_verify(world: World) -> None:
    """Stopped, every byte of its directory is as it must be."""
    writer = world.writer()
    for _ in range(3):
        writer.accepted()
    world.api().checkpoint(writer.labels.at(0), 2)
    world.hub.stop()
    settings = world.hub.settings
    found = fsck.verify(
        world.hub.datadir,
        limits=settings.limits,
        profiles=settings.profiles,
        streams=settings.streams,
        progress=lambda _done, _total: None,
    )
    if not found.ok:
        first = found.faults[0]
        raise Unexpected(
            f"expected no fault, found {len(found.faults)}, "
            f"the first in {first.file} at byte {first.offset}: {first.what}"
        )
    expect_that(found.entries >= 3 and found.checkpoints >= 1, "all of it was looked at")


STEPS: Final = (
    Step("key-rotation", key_rotation),
    Step("restart", restart),
    Step("health-and-metrics", health_and_metrics),
    Step("hub-verify", hub_verify),
)
