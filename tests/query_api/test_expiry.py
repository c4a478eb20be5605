"""Rows of old results are removed: their states, digests and events stay."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import query_world
from flask.testing import FlaskClient

from recorder.api.app import create_app
from recorder.service.audit import Audits
from recorder.service.database import BadDatabase, Database
from recorder.service.expiry import Expiry
from recorder.service.home import ServiceHome
from recorder.service.query_state import RecordRef
from recorder.service.refusal import ErrorCode
from recorder.service.results import Results
from recorder.service.rows_file import RowsWriter
from recorder.service.signatures import TakenSignatures
from recorder.settings import load
from veen.http_signature import KEPT_SEC, NotSigned

DAY = 86_400_000
EVENT = RecordRef("record/query/results", 1, "00" * 32, "rcpt-" + "00" * 32)
NOW = 100 * DAY


class Kept:
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
def keeping(tmp_path: Path) -> Callable[..., Kept]:
    def make(**more: Any) -> Kept:
        return Kept(tmp_path, query_world.recorder_toml("http://127.0.0.1:1", "00" * 32, 1, **more))

    return make


def asking(kept: Kept) -> FlaskClient:
    found = kept.app.test_client()
    found.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {query_world.TOKENS['alice']}"
    return found


def test_nothing_is_removed_unless_it_was_said(keeping: Callable[..., Kept]) -> None:
    kept = keeping()
    kept.add(1, day=0)
    kept.expiry().turn()
    assert not kept.results.is_expired("r-" + "0" * 31 + "1")
    assert len(list(kept.home.rows.iterdir())) == 1


def test_only_old_results_that_have_ended_are_removed(keeping: Callable[..., Kept]) -> None:
    kept = keeping(keep_results_days=30)
    old, young, running = kept.add(1, day=69), kept.add(2, day=71), kept.add(3, day=-1)
    failed = kept.add(4, day=1, failed=True)
    (kept.home.spark / failed).mkdir()
    kept.expiry().turn()
    assert {one.name for one in kept.home.rows.iterdir()} == {young, running}
    assert list(kept.home.spark.iterdir()) == []
    assert kept.results.is_expired(old)


def test_what_was_removed_says_so_and_stays_as_it_ended(keeping: Callable[..., Kept]) -> None:
    kept = keeping(keep_results_days=30)
    old = kept.add(1, day=0)
    http = asking(kept)
    assert http.get(f"/api/query/result/{old}").status_code == 200
    kept.expiry().turn()
    for kind in ("result", "proof"):
        reply = http.get(f"/api/query/{kind}/{old}")
        assert (reply.status_code, reply.get_json()["error_code"]) == (404, "query_not_found")
        assert "kept no longer" in reply.get_json()["message"]
    status = http.get(f"/api/query/status/{old}").get_json()
    assert (status["status"], status["error_code"]) == ("completed", None)
    assert "kept no longer" in status["message"]
    found = kept.results.by_result(old)
    assert found is not None
    assert (found.digest, found.result_event) == (b"{}", EVENT)


def test_a_removal_that_was_cut_short_is_finished(keeping: Callable[..., Kept]) -> None:
    """Marked, and then a power cut: the next start removes the rows."""
    kept = keeping(keep_results_days=30)
    kept.add(1, day=0)
    kept.results.expire(NOW, NOW)
    kept.keep_days = None
    kept.expiry().turn()
    assert list(kept.home.rows.iterdir()) == []


def test_it_is_done_once_an_hour(keeping: Callable[..., Kept]) -> None:
    kept = keeping(keep_results_days=30)
    expiry = kept.expiry()
    expiry.turn()
    kept.add(1, day=0)
    expiry.turn()
    assert len(list(kept.home.rows.iterdir())) == 1
    kept.pass_time(hours=1)
    expiry.turn()
    assert list(kept.home.rows.iterdir()) == []


def test_h21_a_clock_that_ran_ahead_for_a_moment_does_not_stop_expiry(
    keeping: Callable[..., Kept],
) -> None:
    kept = keeping(keep_results_days=30)
    expiry = kept.expiry()
    kept.now += 20 * DAY
    expiry.turn()
    kept.now -= 20 * DAY
    kept.add(1, day=0)
    kept.pass_time(hours=1)
    expiry.turn()
    assert list(kept.home.rows.iterdir()) == []


def test_h21_a_clock_that_is_ahead_removes_nothing_before_its_time(
    keeping: Callable[..., Kept],
) -> None:
    kept = keeping(keep_results_days=30)
    kept.add(1, day=90)
    expiry = kept.expiry()
    expiry.turn()
    kept.now += 400 * DAY
    for _ in range(3):
        kept.pass_time(hours=1)
        expiry.turn()
        assert len(list(kept.home.rows.iterdir())) == 1
    kept.now -= 400 * DAY
    kept.pass_time(hours=24 * 40)
    expiry.turn()
    assert list(kept.home.rows.iterdir()) == []


def test_h21_signatures_are_remembered_by_the_time_since_boot(
    keeping: Callable[..., Kept],
) -> None:
    kept = keeping()
    taken = TakenSignatures(Database(kept.home.database), lambda: kept.steady)
    kept.steady = 1_000_000.0
    taken.take(b"of an earlier boot")
    kept.steady = 10.0
    taken.take(b"of this boot")
    with pytest.raises(NotSigned):
        taken.take(b"of an earlier boot")
    kept.steady += KEPT_SEC + 1
    taken.take(b"of this boot")
    taken.take(b"of an earlier boot")


BEFORE_4 = "DROP TABLE incarnation; ALTER TABLE audits DROP COLUMN batch;"
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
    keeping: Callable[..., Kept], before: str
) -> None:
    kept = keeping()
    kept.add(1, day=0)
    with closing(sqlite3.connect(kept.home.database)) as db:
        db.executescript(before)
    database = Database(kept.home.database)
    results, audits = Results(database), Audits(database)
    assert results.by_query("q-1") is not None
    assert not results.is_expired("r-" + "0" * 31 + "1")
    audits.settle_counts(NOW)
    (entry,) = [one.entry["metadata"] for one in audits.waiting(10)]
    assert (entry["count"], entry["status"], entry["outcome"]) == (7, 401, "unauthorized")


def test_a_file_of_a_later_version_is_refused(keeping: Callable[..., Kept]) -> None:
    kept = keeping()
    with closing(sqlite3.connect(kept.home.database)) as db:
        db.execute("PRAGMA user_version = 9")
    with pytest.raises(BadDatabase, match="of version 9"):
        Database(kept.home.database)
