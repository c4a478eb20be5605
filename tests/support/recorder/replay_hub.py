"""A real hub with recorded streams: its settings, its producers, and who reads it."""

from __future__ import annotations

import os
import shutil
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from recorder.replay.job import Job
from recorder.replay.plan import HubSource
from support.hub.hub_process import HubProcess, configured, wait_until
from veen.client.client import Client
from veen.client.credentials import Bearer
from veen.client.transport import RetryPolicy
from veen.digest import h
from veen.events import RECORD_SCHEMA, RecordEvent
from veen.keystore.directory import ClientDir
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire.body import AnyItem
from veen.wire.canonical_json import json_to_cbor

TOKEN = "the admin's token"
STREAMS = ("record/a", "record/b")
HASTY = RetryPolicy(attempts=2, first_sec=0.01, most_sec=0.05, timeout_sec=10)
SETTINGS = f"""
admission = "open"
reads = "open"
[limits]
max_msg_bytes = 1024
max_body_bytes = 1024
max_hdr_bytes = 512
max_chunk_bytes = 3072
[[streams]]
name = "record/a"
[[streams]]
name = "record/b"
[[principals]]
name = "admin"
role = "recorder_admin"
token_sha256 = "{sha256(TOKEN.encode()).hexdigest()}"
read = ["*"]
"""
"""Chunks of a few entries each, so that most of the log is in sealed ones."""


def a_hub(folder: Path) -> HubProcess:
    return configured(folder, SETTINGS)


def a_copy(data: Path, folder: Path) -> HubProcess:
    """The same hub elsewhere, from the directory of one that had stopped."""
    result = a_hub(folder)
    shutil.copytree(data, result.data)
    return result


def a_client(directory: Path, url: str) -> Client:
    home = ClientDir(directory)
    if not home.keystore.exists():
        home.create(now=int(time.time()), random=os.urandom, passphrase=None)
    return Client.open(directory, url, retry_policy=HASTY, credentials=Bearer(TOKEN))


def record(client: Client, stream: str, recipient: bytes, numbers: range) -> None:
    me = client.session.identity.client_id
    bodies = [an_event(me, number).encode() for number in numbers]
    list(client.send_many(stream, bodies, schema=RECORD_SCHEMA, recipient=recipient))


def an_event(principal: bytes, number: int) -> RecordEvent:
    return RecordEvent(
        subject_id=f"subject-{number % 3}",
        principal_id=principal,
        event_type="test.done",
        event_time=1_700_000_000_000 + number,
        origin="line-1",
        payload=AnyItem(json_to_cbor(f'{{"n": {number}}}')),
    )


def next_second() -> int:
    """Hub time has whole seconds; wait until the next one has begun."""
    now = int(time.time())
    wait_until(lambda: time.time() >= now + 1, 3, "the next second")
    return now + 1


def checkpoint(url: str, folder: Path) -> RecorderCheckpoint:
    with a_client(folder, url) as client:
        client.meet()
        return client.session.api.recorder_checkpoint(h(b"a profile"))


def a_job(client: Client, requested: Any, chosen: RecorderCheckpoint, **more: Any) -> Job:
    return Job(
        source=HubSource(client), requested=lambda _: requested, latest=lambda: chosen, **more
    )
