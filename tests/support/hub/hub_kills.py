"""Kill a loaded hub and start it again, many times; look each time what it kept."""

from __future__ import annotations

import random
import shutil
import time
from typing import Any

from hub.fsck.fsck import verify
from hub.settings import load
from hub.storage.datadir import DataDir
from support.hub.hub_load import Producer, working
from support.hub.hub_process import HubProcess
from support.hub.spec_client import Client, Log
from support.hub.spec_objects import key

TOML = """
admission = "open"
reads = "open"
[limits]
max_msg_bytes = 4096
max_chunk_bytes = 16384
max_checkpoint_interval = 50
"""


def start_directly(hub: HubProcess) -> HubProcess:
    """Without the command around it, which is a good part of the time of a start."""
    hub.config = hub.data.parent / "hub.toml"
    return hub.start()


def kill_and_check(hub: HubProcess, seed: int, victims: tuple[str, ...], kills: int) -> None:
    chance = random.Random(seed)
    first = hub.client()
    producers = [Producer(first.writer(key(f"client {n}"), f"record/{n % 2}")) for n in range(4)]
    logs = {producer.writer.label: first.log(producer.writer.label) for producer in producers}
    client = first
    for turn in range(kills):
        with working(hub, producers):
            time.sleep(chance.uniform(0.02, 0.25))
            hub.kill(_processes(hub, victims[turn % len(victims)]))
        client = hub.start().client()
        verify_log(hub)
        for producer in producers:
            settle(producer, client)
        for log in logs.values():
            client.read(log)
        check(producers, logs)
    assert sum(producer.recovered for producer in producers) > 0, "no answer was ever lost"
    for label, log in logs.items():
        assert client.read(client.log(label)).entries == log.entries


def verify_log(hub: HubProcess) -> None:
    """The log as the start left it, before anyone writes; of a copy, for the hub holds its own."""
    copy = hub.data.with_name("copy")
    shutil.copytree(hub.data, copy, ignore=shutil.ignore_patterns("run"))
    settings = load(hub.data.parent / "hub.toml")
    report = verify(
        DataDir(copy),
        limits=settings.limits,
        profiles=settings.profiles,
        streams=settings.streams,
        progress=lambda *_: None,
    )
    shutil.rmtree(copy)
    assert report.ok, report.faults
    assert not report.derived, report.derived


def settle(producer: Producer, client: Client) -> None:
    """What was unanswered is asked for again, and the next messages go on after it."""
    producer.send(client)
    producer.send(client)
    assert not producer.unanswered


def check(producers: list[Producer], logs: dict[bytes, Log]) -> None:
    """The verified log holds every promise in its place, and nothing beyond what was sent."""
    for label, log in logs.items():
        own = [producer for producer in producers if producer.writer.label == label]
        promised = [receipt for item in own for receipt in item.promised]
        assert all(log.entries[receipt[2] - 1][1] == receipt for receipt in promised)
        assert len(promised) == log.mmr.size
    for producer in producers:
        assert len(producer.promised) == producer.writer.seq


def _processes(hub: HubProcess, name: str) -> list[Any]:
    if name == "sequencer":
        return hub.named("hub.sequencer")
    return hub.processes()[:1] if name == "supervisor" else hub.processes()
