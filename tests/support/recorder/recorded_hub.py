"""A hub as a process, written to for some seconds, and all that it answered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cbor2

from support.hub.hub_process import HubProcess, wait_until
from support.hub.spec_client import Client
from support.hub.spec_objects import auth_ref, cap_token, key

ISSUER = key("issuer")
TOML = f"""
admission = "open"
reads = "open"
workers = 1
issuers = ["{bytes(ISSUER.verify_key).hex()}"]
[limits]
max_msg_bytes = 4096
max_chunk_bytes = 16384
max_checkpoint_interval = 10
[[streams]]
name = "record/b"
[[streams]]
name = "logs/a"
[[retention]]
streams = "logs/a"
keep_days = 1
"""


@dataclass(frozen=True)
class Recorded:
    data: Path
    toml: Path
    hub_id: bytes
    hub_pk: bytes
    writers: dict[str, Any]
    answers: dict[tuple[bytes, int], tuple[bytes, bytes]]
    """Receipt and proof of every place, as bytes."""

    @property
    def label(self) -> bytes:
        """The label that has sealed chunks and an open one."""
        result: bytes = self.writers["logs/a"].label
        return result

    def entries(self) -> int:
        return len(self.answers)


def start(hub: HubProcess, toml: Path) -> HubProcess:
    """Without the command around it, which is a good part of the time of a start."""
    hub.config = toml
    return hub.start()


def record(root: Path) -> Recorded:
    toml = root / "hub.toml"
    toml.write_text(TOML)
    hub = HubProcess(root)
    try:
        return _write(start(hub, toml), toml)
    finally:
        hub.destroy()


def answers_of(client: Client, labels: dict[bytes, int]) -> dict[tuple[bytes, int], Any]:
    return {
        (label, seq): (
            cbor2.dumps(client.receipt(label, seq)),
            cbor2.dumps(client.proof(label, seq)),
        )
        for label, count in labels.items()
        for seq in range(1, count + 1)
    }


def _write(hub: HubProcess, toml: Path) -> Recorded:
    client = hub.client()
    token = cap_token(ISSUER, bytes(key("carol").verify_key), ["record/c"], 86_400, (1_000, 1_000))
    client.authorize(token)
    writers = {
        "logs/a": client.writer(key("alice"), "logs/a"),
        "record/b": client.writer(key("bob"), "record/b"),
        "record/c": client.writer(key("carol"), "record/c", auth_ref=auth_ref(token)),
    }
    counts = dict.fromkeys(writers, 0)
    for name, count in (
        ("logs/a", 12), ("record/c", 13), ("logs/a", 13), ("record/b", 7), ("logs/a", 11),
        ("record/c", 4),
    ):  # fmt: skip
        _send(client, writers[name], count)
        counts[name] += count
        _next_second()
    client.checkpoint(writers["logs/a"].label, 33)
    labels = {writers[name].label: count for name, count in counts.items()}
    result = answers_of(client, labels)
    (hub_pk,) = client.hub_pks
    assert hub.stop() == 0
    return Recorded(hub.data, toml, client.hub_id, hub_pk, writers, result)


def _send(client: Client, writer: Any, count: int) -> None:
    results = client.submit_batch([writer.msg(b"%d" % n) for n in range(count)])
    assert all(isinstance(result, list) for result in results), results
    last = results[-1]
    assert isinstance(last, list)
    writer.prev_ack = last[2]


def _next_second() -> None:
    now = int(time.time())
    wait_until(lambda: int(time.time()) > now, 5, "the next second")
