"""H17: audit entries survive a service.sqlite that was deleted, or restored from an older copy."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from recorder.checkpoints.store import HubIdentityFile
from recorder.emit.emitter import Emitter
from recorder.service.database import Database, Results
from recorder.service.recording import AccessAttempt, Audits, Bookkeeping, Recording
from support.recorder.service_database import BEFORE_5
from veen.client.client import Client
from veen.events import RECORD_SCHEMA, read_event


def test_h17_no_audit_entry_is_lost_with_the_file_or_with_an_older_copy_of_it(
    query_hub: Any, make_query_zone: Callable[..., Any], tmp_path: Path
) -> None:
    """The numbers of the file go back, or begin again, between two runs of the service."""
    zone = make_query_zone(query_hub)
    database, older = tmp_path / "service.sqlite", tmp_path / "older.sqlite"
    record(zone, database, range(8))
    with closing(sqlite3.connect(database)) as db, closing(sqlite3.connect(older)) as copy:
        db.backup(copy)
    record(zone, database, range(8, 16))
    remove(database)
    shutil.copyfile(older, database)
    record(zone, database, range(16, 24))
    remove(database)
    record(zone, database, range(24, 32))
    assert audited(zone) == [f"query:{number}" for number in range(32)]


def remove(database: Path) -> None:
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()


def record(zone: Any, path: Path, numbers: range) -> None:
    """What the service's runner does with audit entries, from its file to the hub."""
    database, settings = Database(path), zone.settings
    with closing(Client.open(zone.folder / "service", zone.hub.url)) as client:
        recipient = zone.reader.card.recipient(int(time.time()))
        emitter = Emitter(client, settings.streams, clock=lambda: 1, recipient=recipient)
        recording = Recording(
            client, emitter, HubIdentityFile(path.with_name("signed-hub-identity.cbor")), "query@z1"
        )
        audits = Audits(database)
        books = Bookkeeping(
            Results(database), audits, recording,
            principal_of=lambda _: None, clock_ms=lambda: 60_000,
        )  # fmt: skip
        for number in numbers:
            audits.add(an_attempt(number))
        books.record_audits()
        assert (audits.count(), client.pending()) == (0, 0)


def audited(zone: Any) -> list[str]:
    """What the audit stream holds of this service, in its order."""
    with closing(Client.open(zone.folder / "service", zone.hub.url)) as client:
        return [
            read_event(
                RECORD_SCHEMA, client.open_payload(pair.msg).body, pair.msg.client_id
            ).value()["resource_identifier"]
            for pair in client.read("record/query/audit/access")
            if pair.msg.client_id == zone.reader.client_id
        ]


def test_h17_a_batch_is_the_same_until_it_is_ended(tmp_path: Path) -> None:
    audits = Audits(Database(tmp_path / "service.sqlite"))
    for number in range(5):
        audits.add(an_attempt(number))
    begun = audits.next_batch(3)
    assert begun is not None
    audits.add(an_attempt(5))
    assert audits.next_batch(3) == begun
    audits.end_batch(begun)
    rest = audits.next_batch(3)
    assert rest is not None
    assert rest.token != begun.token
    assert [entry["resource_identifier"] for entry in rest.entries] == [
        "query:3",
        "query:4",
        "query:5",
    ]
    audits.end_batch(rest)
    assert audits.next_batch(3) is None


def test_h17_an_existing_file_gets_an_incarnation_and_keeps_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "service.sqlite"
    Audits(Database(path)).add(an_attempt(1))
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            f"{BEFORE_5} DROP TABLE incarnation; ALTER TABLE audits DROP COLUMN batch; "
            "PRAGMA user_version = 3"
        )
    batch = Audits(Database(path)).next_batch(10)
    again = Audits(Database(path)).next_batch(10)
    assert batch is not None
    assert batch == again
    assert (len(batch.incarnation), len(batch.entries)) == (32, 1)
    Database(tmp_path / "new")
    assert version_of(path) == version_of(tmp_path / "new")


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        return int(version)


def an_attempt(number: int) -> AccessAttempt:
    return AccessAttempt(
        requester="alice", subject_id="user:alice", identity=bytes(32), route="/x",
        resource=f"query:{number}", parameters={}, purpose=None, outcome="ok", status=200,
        source="127.0.0.1", result_digest=None, time_ms=1_000,
    )  # fmt: skip
