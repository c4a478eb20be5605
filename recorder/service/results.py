"""The states of all queries, shared by the HTTP workers and the runner (Query API 8.1).

What a call here changes is on disk when it returns. That ends are final is held by the file
itself, whoever writes to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from recorder.service.database import Database
from recorder.service.query_state import COLUMNS, Query, RecordRef, State, query_of
from recorder.service.refusal import ErrorCode, Refusal


class Results:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(
        self, *, query_id: str, result_id: str, principal: str, descriptor: bytes, now_ms: int
    ) -> None:
        """Keep a query to be recorded and run; its query_id must be new."""
        row = (query_id, result_id, principal, descriptor, now_ms)
        try:
            with self._db.changing() as db:
                db.execute(
                    "INSERT INTO queries (query_id, result_id, principal, descriptor, submitted) "
                    "VALUES (?, ?, ?, ?, ?)",
                    row,
                )
        except sqlite3.IntegrityError as error:
            raise Refusal(
                ErrorCode.DUPLICATE_QUERY_ID,
                f"query_id {query_id} is taken; submit without one, or choose another",
            ) from error

    def by_result(self, result_id: str) -> Query | None:
        return self._first("result_id = ?", result_id)

    def by_query(self, query_id: str) -> Query | None:
        return self._first("query_id = ?", query_id)

    def unrecorded(self) -> list[Query]:
        """Queries whose descriptor has no receipt yet, in the order they came."""
        return self._all("state = 'pending' AND request_event IS NULL ORDER BY submitted, query_id")

    def half_recorded(self) -> list[Query]:
        """Queries whose descriptor may or may not be in the log."""
        return self._all(
            "state = 'pending' AND request_event IS NULL AND requests_from IS NOT NULL"
        )

    def materialised_only(self) -> list[Query]:
        """Queries whose digest may or may not be in the log."""
        return self._all("state = 'running' AND digest IS NOT NULL")

    def last_seq(self, event: str) -> int:
        """The last place in its stream that is known of request_event or result_event."""
        query = f"SELECT coalesce(max({event} ->> 'seq'), 0) FROM queries"  # noqa: S608
        ((found,),) = self._db.rows(query)
        return int(found)

    def runnable(self, owner: str) -> list[Query]:
        """Queries to be run: recorded ones, and those of a runner that is gone."""
        return self._all(
            "state IN ('pending', 'running') AND request_event IS NOT NULL AND digest IS NULL "
            "AND owner IS NOT ? ORDER BY submitted, query_id",
            owner,
        )

    def counts(self) -> Mapping[str, int]:
        found = self._db.rows("SELECT state, count(*) FROM queries GROUP BY state")
        return {one.value: 0 for one in State} | dict(found)

    def begin_recording(self, query_id: str, requests_from: int) -> bool:
        """Note where the descriptor can stand at the earliest; False when it was cancelled."""
        return self._changed(
            "requests_from = ? WHERE query_id = ? AND request_event IS NULL",
            requests_from, query_id,
        )  # fmt: skip

    def recorded(self, query_id: str, event: RecordRef) -> None:
        self._changed("request_event = ? WHERE query_id = ?", event.encode(), query_id)

    def cancel(self, query_id: str) -> bool:
        """Forget a query that nobody has begun to record; False when somebody has."""
        return self._deleted("requests_from IS NULL", query_id)

    def drop(self, query_id: str) -> None:
        """Forget a query that could not be recorded, and of which nothing is in the log."""
        self._deleted("request_event IS NULL", query_id)

    def begin(self, query_id: str, *, owner: str, engine: str, now_ms: int) -> None:
        """An attempt for each runner, also when a query goes from one engine to the other."""
        self._changed(
            "state = 'running', attempts = attempts + (owner IS NOT ?), owner = ?, engine = ?, "
            "started = ? WHERE query_id = ?",
            owner, owner, engine, now_ms, query_id,
        )  # fmt: skip

    def materialised(self, query_id: str, digest: bytes, results_from: int) -> None:
        """The rows are on disk and this is their digest: it is what will be recorded."""
        self._changed(
            "digest = ?, results_from = ? WHERE query_id = ? AND digest IS NULL",
            digest, results_from, query_id,
        )  # fmt: skip

    def completed(self, query_id: str, event: RecordRef, now_ms: int) -> None:
        self._changed(
            "state = 'completed', result_event = ?, finished = ? WHERE query_id = ?",
            event.encode(), now_ms, query_id,
        )  # fmt: skip

    def failed(self, query_id: str, code: ErrorCode, message: str, now_ms: int) -> None:
        self._changed(
            "state = 'failed', error_code = ?, message = ?, finished = ? WHERE query_id = ?",
            code.code, message, now_ms, query_id,
        )  # fmt: skip

    def expire(self, ended_before: int, now_ms: int) -> None:
        """The rows of what ended before that are given up; states and digests stay."""
        with self._db.changing() as db:
            db.execute(
                "INSERT OR IGNORE INTO expired SELECT result_id, ? FROM queries "
                "WHERE state IN ('completed', 'failed') AND finished < ?",
                (now_ms, ended_before),
            )

    def is_expired(self, result_id: str) -> bool:
        return bool(self._db.rows("SELECT 1 FROM expired WHERE result_id = ?", result_id))

    def _changed(self, change: str, *values: object) -> bool:
        with self._db.changing() as db:
            return db.execute(f"UPDATE queries SET {change}", values).rowcount > 0  # noqa: S608

    def _deleted(self, condition: str, query_id: str) -> bool:
        query = f"DELETE FROM queries WHERE query_id = ? AND {condition}"  # noqa: S608
        with self._db.changing() as db:
            return db.execute(query, (query_id,)).rowcount > 0

    def _first(self, condition: str, value: str) -> Query | None:
        return next(iter(self._all(condition, value)), None)

    def _all(self, condition: str, *values: object) -> list[Query]:
        query = f"SELECT {COLUMNS} FROM queries WHERE {condition}"  # noqa: S608
        return [query_of(row) for row in self._db.rows(query, *values)]
