"""Who asked for what, and what was answered: entries that wait until they are in the log.

The fields are those of the query audit profile. An entry is on disk before its request is
answered. Requests of nobody known, and those for what is not here, are counted by source, minute
and status, so that a flood of them is a few entries a minute and not the end of the log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from recorder.service.database import Database
from recorder.timestamp import render
from veen import canonical_json

RESOURCE_CLASS: Final = "system-log"
MAX_SOURCES: Final = 256
"""Sources that are counted apart in one minute; the rest is counted together."""

_OTHERS: Final = "others"
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request of a known principal; ``result_digest`` is H of the digest that was shown."""

    requester: str
    subject_id: str
    identity: bytes
    route: str
    resource: str
    parameters: dict[str, Any]
    purpose: str | None
    outcome: str
    status: int
    source: str
    result_digest: str | None
    time_ms: int

    def entry(self) -> dict[str, Any]:
        return {
            "requester_identity": self.identity.hex(),
            "resource_identifier": self.resource,
            "resource_class": RESOURCE_CLASS,
            "query_parameters": self.parameters,
            "purpose_code": self.purpose,
            "result_digest": self.result_digest,
            "request_time": render(self.time_ms),
            "metadata": {
                "requester": self.requester,
                "subject_id": self.subject_id,
                "route": self.route,
                "outcome": self.outcome,
                "status": self.status,
                "source": self.source,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A request of nobody known, or for what is not here."""

    source: str
    route: str
    outcome: str
    status: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """An entry by its number; numbers are given once."""

    number: int
    entry: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Entries that go to the client's outbox together, under a token that is used once.

    The outbox keeps the token with the entries. Numbers would not do: a file that was lost or
    restored from an older copy gives numbers again which the outbox has seen for other entries.
    ``incarnation`` names the file: a new file has a new one.
    """

    incarnation: str
    token: bytes
    entries: tuple[dict[str, Any], ...]


class Audits:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, attempt: Attempt) -> None:
        self._insert(attempt.entry())

    def add_counted(self, one: Counted) -> None:
        """A request that is only counted. Who floods from many addresses is counted as one."""
        minute = one.time_ms // _MINUTE_MS
        with self._db.changing() as db:
            (sources,) = db.execute(
                "SELECT count(DISTINCT source) FROM counted WHERE minute = ? AND source <> ?",
                (minute, one.source),
            ).fetchone()
            source = one.source if sources < MAX_SOURCES else _OTHERS
            db.execute(
                "INSERT INTO counted VALUES (?, ?, ?, ?, 1, ?) "
                "ON CONFLICT DO UPDATE SET count = count + 1",
                (minute, source, one.status, one.outcome, one.route),
            )

    def settle_counts(self, now_ms: int) -> int:
        """Turn the counts of past minutes into entries; how many."""
        with self._db.changing() as db:
            past = "FROM counted WHERE minute < ?"
            rows = db.execute(f"SELECT * {past}", (now_ms // _MINUTE_MS,)).fetchall()
            for row in rows:
                entry = canonical_json.encode(_counted(*row))
                db.execute("INSERT INTO audits (entry) VALUES (?)", (entry,))
            db.execute(f"DELETE {past}", (now_ms // _MINUTE_MS,))
        return len(rows)

    def waiting(self, limit: int) -> list[Waiting]:
        query = "SELECT id, entry FROM audits ORDER BY id LIMIT ?"
        return [Waiting(number, json.loads(entry)) for number, entry in self._db.rows(query, limit)]

    def next_batch(self, limit: int) -> Batch | None:
        """The batch that was begun and not ended, else the oldest entries as a new one."""
        with self._db.changing() as db:
            (token,) = db.execute("SELECT max(batch) FROM audits").fetchone()
            if token is None:
                (token,) = db.execute("SELECT randomblob(16)").fetchone()
                oldest = "SELECT id FROM audits ORDER BY id LIMIT ?"
                db.execute(f"UPDATE audits SET batch = ? WHERE id IN ({oldest})", (token, limit))  # noqa: S608
            rows = db.execute("SELECT entry FROM audits WHERE batch = ? ORDER BY id", (token,))
            entries = tuple(json.loads(entry) for (entry,) in rows)
            ((incarnation,),) = db.execute("SELECT id FROM incarnation").fetchall()
        return Batch(incarnation=incarnation, token=token, entries=entries) if entries else None

    def end_batch(self, batch: Batch) -> None:
        """Forget entries that are in the client's outbox, or in the log by now."""
        with self._db.changing() as db:
            db.execute("DELETE FROM audits WHERE batch = ?", (batch.token,))

    def count(self) -> int:
        ((count,),) = self._db.rows("SELECT count(*) FROM audits")
        return int(count)

    def _insert(self, entry: dict[str, Any]) -> None:
        with self._db.changing() as db:
            db.execute("INSERT INTO audits (entry) VALUES (?)", (canonical_json.encode(entry),))


def _counted(
    minute: int, source: str, status: int, outcome: str, count: int, route: str
) -> dict[str, Any]:
    return {
        "requester_identity": None,
        "resource_identifier": route,
        "resource_class": RESOURCE_CLASS,
        "query_parameters": None,
        "purpose_code": None,
        "result_digest": None,
        "request_time": render(minute * _MINUTE_MS),
        "metadata": {
            "requester": None,
            "subject_id": None,
            "route": route,
            "outcome": outcome,
            "status": status,
            "source": source,
            "count": count,
        },
    }
