"""A real hub with recorder streams, who writes to it, and who follows it into an index."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from recorder.index.follower import Follower, opening
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from recorder.index.writer import writing
from support.client.client_producer import a_client
from support.hub.hub_process import HubProcess
from veen.client.client import Client
from veen.client.credentials import Bearer
from veen.digest import h
from veen.events import RECORD_SCHEMA, RecordEvent
from veen.wire.api import RegisterRequest, StreamsResponse
from veen.wire.body import AnyItem
from veen.wire.canonical_json import json_to_cbor

TOKEN = "the admin's token"
FIRST, SECOND, EMPTY = "record/first", "record/second", "record/empty"
SETTINGS = f"""
admission = "open"
reads = "open"
[[principals]]
name = "admin"
role = "recorder_admin"
token_sha256 = "{sha256(TOKEN.encode()).hexdigest()}"
read = ["*"]
"""


def a_hub(folder: Path, names: tuple[str, ...] = (FIRST, SECOND, EMPTY)) -> HubProcess:
    process = HubProcess(folder)
    process.config = folder / "hub.toml"
    settle(process, names)
    return process


def settle(hub: HubProcess, names: tuple[str, ...]) -> None:
    """Which streams the hub knows when it next starts."""
    tables = "".join(f'[[streams]]\nname = "{name}"\n' for name in names)
    (hub.data.parent / "hub.toml").write_text(SETTINGS + tables)


def put_back(hub: HubProcess, copy: Path) -> None:
    """Let a stopped hub forget what it took since the copy."""
    shutil.rmtree(hub.data)
    shutil.copytree(copy, hub.data)


def record(client: Client, stream: str, reader: Client, numbers: range) -> None:
    """Events sealed to the reader, and after every fifty of them a message that is none."""
    me, recipient = client.session.identity.client_id, reader._own_key()
    for start in range(numbers.start, numbers.stop, 50):
        some = range(start, min(start + 50, numbers.stop))
        events = [an_event(me, number).encode() for number in some]
        list(client.send_many(stream, events[:-1], schema=RECORD_SCHEMA, recipient=recipient))
        list(client.send_many(stream, events[-1:], schema=h(b"none"), recipient=recipient))


def an_event(principal: bytes, number: int) -> RecordEvent:
    return RecordEvent(
        subject_id=f"subject-{number % 3}",
        principal_id=principal,
        event_type="test.done",
        event_time=1_700_000_000_000 + number,
        origin=f"line-{number % 2}",
        payload=AnyItem(json_to_cbor(f'{{"n": {number}}}')),
    )


def checkpoint(url: str, folder: Path) -> Any:
    with a_client(folder, url, credentials=Bearer(TOKEN)) as client:
        client.meet()
        return client.session.api.recorder_checkpoint(h(b"a profile"), force=True)


def register(url: str, folder: Path, **stream: Any) -> None:
    with a_client(folder, url, credentials=Bearer(TOKEN)) as client:
        transport = client.session.api.transport
        transport.post("/tooling/streams", RegisterRequest(**stream), StreamsResponse)


@contextmanager
def following(
    client: Client, home: IndexHome, openers: int = 0, requested: frozenset[str] | None = None
) -> Iterator[Follower]:
    """A follower in this process."""
    session = client.meet()
    with (
        home.locked(),
        opening(session.identity.readers(), session.limits, openers) as opener,
        writing(create(home, session.hub.hub_id)) as writer,
    ):
        yield Follower(client, writer, opener, requested)


def catch_up(
    client: Client, home: IndexHome, openers: int = 0, requested: frozenset[str] | None = None
) -> int:
    with following(client, home, openers, requested) as follower:
        done = 0
        while result := follower.round():
            done += result
        return done


def dump(home: IndexHome) -> dict[str, list[tuple[Any, ...]]]:
    """All rows by stream, read without the code under test."""
    db = sqlite3.connect(home.current().root / "index.sqlite")
    result = {}
    for number, name, *state in db.execute(
        "SELECT stream_no, name, position, root, last_ts, unread FROM streams"
    ).fetchall():
        low, high = number << 40, (number + 1) << 40
        rows = db.execute(
            "SELECT e.place - ?, e.hub_ts, e.leaf_hash, e.unread, e.fault, e.subject_id, "
            "e.principal_id, e.event_type, e.event_time, e.origin, e.payload, p.msg, p.receipt, "
            "p.body_key FROM events e JOIN pairs p USING (place) "
            "WHERE place > ? AND place < ? ORDER BY place",
            (low, low, high),
        ).fetchall()
        nodes = home.current().root / "nodes" / f"{number:08d}"
        count = 2 * state[0] - state[0].bit_count()
        stored = nodes.read_bytes()[: 32 * count] if state[0] else b""
        result[name] = [tuple(state), (stored,), *rows]
    db.close()
    return result
