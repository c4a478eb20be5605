"""Rows of old results are removed: their states, digests and events stay."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from recorder.api.app import create_app
from recorder.api.auth import TakenSignatures
from recorder.service.database import BadDatabase, Database, RecordRef, Results
from recorder.service.errors import ErrorCode
from recorder.service.execute import RowsWriter
from recorder.service.recording import Audits
from recorder.service.runner import Expiry
from recorder.service.supervisor import ServiceHome
from recorder.settings import load
from support.recorder import query_world, service_database
from veen.http_signature import SIGNATURE_MEMORY_SEC, NotSigned

DAY = 86_400_000
EVENT = RecordRef("record/query/results", 1, "00" * 32, "rcpt-" + "00" * 32)
NOW = 100 * DAY


class StoredResults:
    """Results that ended on given days, and what removes the old ones."""

    def __init__(self, folder: Path, text: str) -> None:
        (folder / "recorder.toml").write_text(text)
        settings = load(folder / "recorder.toml")
        self.app = create_app(settings)
        self.home = ServiceHome(settings.query.results)
        self.results = Results(Database(self.home.database))
        self.now = NOW
        self.steady = 0.0
        self.keep_days = settings.query.keep_results_days

    def expiry(self) -> Expiry:
        return Expiry(
            self.results, self.home, self.keep_days, lambda: self.now, lambda: self.steady
        )

    def pass_time(self, hours: int) -> None:
        self.now += hours * 3_600_000
        self.steady += hours * 3_600

    def add(self, number: int, day: int, failed: bool = False) -> str:
        query_id, result_id = f"q-{number}", f"r-{number:032x}"
        self.results.add(
            query_id=query_id, result_id=result_id, principal="alice", descriptor=b"{}", now_ms=0
        )
        self.results.begin_recording(query_id, 0)
        self.results.recorded(query_id, EVENT)
        self.results.begin(query_id, owner="me", engine="inline", now_ms=0)
        writer = RowsWriter(self.home.rows / result_id)
        list(writer.through([{"n": number}]))
        writer.finish()
        if failed:
            self.results.failed(query_id, ErrorCode.EXECUTION_FAILED, "no", day * DAY)
        elif day >= 0:
            self.results.materialised(query_id, b"{}", 0)
            self.results.completed(query_id, EVENT, day * DAY)
        return result_id


@pytest.fixture
def keeping(tmp_path: Path) -> Callable[..., StoredResults]:
    def make(**more: Any) -> StoredResults:
        return StoredResults(
            tmp_path, query_world.recorder_toml("http://127.0.0.1:1", "00" * 32, 1, **more)
        )

    return make


def asking(stored: StoredResults) -> FlaskClient:
    result = stored.app.test_client()
    result.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {query_world.TOKENS['alice']}"
    return result


def test_nothing_is_removed_unless_it_was_said(keeping: Callable[..., StoredResults]) -> None:
    stored = keeping()
    stored.add(1, day=0)
    stored.expiry().turn()
    assert not stored.results.is_expired("r-" + "0" * 31 + "1")
    assert len(list(stored.home.rows.iterdir())) == 1


def test_only_old_results_that_have_ended_are_removed(
    keeping: Callable[..., StoredResults],
) -> None:
    stored = keeping(keep_results_days=30)
    old, young, running = stored.add(1, day=69), stored.add(2, day=71), stored.add(3, day=-1)
    failed = stored.add(4, day=1, failed=True)
    (stored.home.spark / failed).mkdir()
    stored.expiry().turn()
    assert {path.name for path in stored.home.rows.iterdir()} == {young, running}
    assert list(stored.home.spark.iterdir()) == []
    assert stored.results.is_expired(old)


def test_what_was_removed_says_so_and_stays_as_it_ended(
    keeping: Callable[..., StoredResults],
) -> None:
    stored = keeping(keep_results_days=30)
    old = stored.add(1, day=0)
    http = asking(stored)
    assert http.get(f"/api/query/result/{old}").status_code == 200
    stored.expiry().turn()
    for kind in ("result", "proof"):
        reply = http.get(f"/api/query/{kind}/{old}")
        assert (reply.status_code, reply.get_json()["error_code"]) == (404, "query_not_found")
        assert "have expired" in reply.get_json()["message"]
    status = http.get(f"/api/query/status/{old}").get_json()
    assert (status["status"], status["error_code"]) == ("completed", None)
    assert "have expired" in status["message"]
    by_result = stored.results.by_result(old)
    assert by_result is not None
    assert (by_result.digest, by_result.result_event) == (b"{}", EVENT)


def test_a_removal_that_was_cut_short_is_finished(keeping: Callable[..., StoredResults]) -> None:
    """Marked, and then a power cut: the next start removes the rows."""
    stored = keeping(keep_results_days=30)
    stored.add(1, day=0)
    stored.results.expire(NOW, NOW)
    stored.keep_days = None
    stored.expiry().turn()
    assert list(stored.home.rows.iterdir()) == []


def test_it_is_done_once_an_hour(keeping: Callable[..., StoredResults]) -> None:
    stored = keeping(keep_results_days=30)
    expiry = stored.expiry()
    expiry.turn()
    stored.add(1, day=0)
    expiry.turn()
    assert len(list(stored.home.rows.iterdir())) == 1
    stored.pass_time(hours=1)
    expiry.turn()
    assert list(stored.home.rows.iterdir()) == []


def test_h21_a_clock_that_ran_ahead_for_a_moment_does_not_stop_expiry(
    keeping: Callable[..., StoredResults],
) -> None:
    stored = keeping(keep_results_days=30)
    expiry = stored.expiry()
    stored.now += 20 * DAY
    expiry.turn()
    stored.now -= 20 * DAY
    stored.add(1, day=0)
    stored.pass_time(hours=1)
    expiry.turn()
    assert list(stored.home.rows.iterdir()) == []


def test_h21_a_clock_that_is_ahead_removes_nothing_before_its_time(
    keeping: Callable[..., StoredResults],
) -> None:
    stored = keeping(keep_results_days=30)
    stored.add(1, day=90)
    expiry = stored.expiry()
    expiry.turn()
    stored.now += 400 * DAY
    for _ in range(3):
        stored.pass_time(hours=1)
        expiry.turn()
        assert len(list(stored.home.rows.iterdir())) == 1
    stored.now -= 400 * DAY
    stored.pass_time(hours=24 * 40)
    expiry.turn()
    assert list(stored.home.rows.iterdir()) == []


def test_h21_signatures_are_remembered_by_the_time_since_boot(
    keeping: Callable[..., StoredResults],
) -> None:
    stored = keeping()
    taken = TakenSignatures(Database(stored.home.database), lambda: stored.steady)
    stored.steady = 1_000_000.0
    taken.take(b"of an earlier boot")
    stored.steady = 10.0
    taken.take(b"of this boot")
    with pytest.raises(NotSigned):
        taken.take(b"of an earlier boot")
    stored.steady += SIGNATURE_MEMORY_SEC + 1
    taken.take(b"of this boot")
    taken.take(b"of an earlier boot")


BEFORE_4 = (
    f"{service_database.BEFORE_5} DROP TABLE incarnation; ALTER TABLE audits DROP COLUMN batch;"
)
BEFORE_3 = f"""{BEFORE_4}
DROP TABLE counted;
CREATE TABLE refusals (
    minute INTEGER NOT NULL, source TEXT NOT NULL, count INTEGER NOT NULL, route TEXT NOT NULL,
    PRIMARY KEY (minute, source)
) WITHOUT ROWID;
INSERT INTO refusals VALUES (1, '10.0.0.1', 7, '/api');
"""


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(f"{BEFORE_3} PRAGMA user_version = 2", id="version 2"),
        pytest.param(f"{BEFORE_3} DROP TABLE expired; PRAGMA user_version = 1", id="version 1"),
    ],
)
def test_a_file_of_an_older_version_is_taken_over(
    keeping: Callable[..., StoredResults], before: str
) -> None:
    stored = keeping()
    stored.add(1, day=0)
    with closing(sqlite3.connect(stored.home.database)) as db:
        db.executescript(before)
    database = Database(stored.home.database)
    results, audits = Results(database), Audits(database)
    assert results.by_query("q-1") is not None
    assert not results.is_expired("r-" + "0" * 31 + "1")
    audits.settle_counts(NOW)
    (entry,) = [item.entry["metadata"] for item in audits.waiting(10)]
    assert (entry["count"], entry["status"], entry["outcome"]) == (7, 401, "unauthorized")


def test_a_file_of_a_later_version_is_refused(keeping: Callable[..., StoredResults]) -> None:
    stored = keeping()
    with closing(sqlite3.connect(stored.home.database)) as db:
        db.execute("PRAGMA user_version = 9")
    with pytest.raises(BadDatabase, match="got version 9"):
        Database(stored.home.database)
