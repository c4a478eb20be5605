"""The commands of the index, against a hub that runs: what they print and how they end."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from support.hub import hub_process
from support.recorder import index_recorded

INTEGRITY, REFUSED = 3, 4


@pytest.fixture(scope="module")
def veen() -> Any:
    def words(*given: object) -> tuple[int, Any]:
        done = hub_process.veen("recorder", "index", *given, "--json")
        return done.returncode, json.loads(done.stdout)

    return words


def test_follow_status_verify_and_rebuild(
    shared_index_hub: Any, open_client: Any, veen: Any, tmp_path: Path
) -> None:
    with open_client(shared_index_hub.url, "reader") as reader:
        writer = open_client(shared_index_hub.url, "writer")
        index_recorded.record(writer, "record/1", reader, range(20))
    at = ("--index", tmp_path / "index")
    reads = (*at, "--hub", shared_index_hub.url, "--client", tmp_path / "reader", "--openers", 0)

    code, detail = veen("status", *at)
    assert (code, detail["code"]) == (REFUSED, "NO_INDEX")
    code, detail = veen("follow", *reads, "--once")
    assert (code, detail["lag_entries"], detail["streams"][0]["indexed"]) == (0, 0, 20)
    code, detail = veen("status", *at)
    assert (code, detail["alarms"], detail["streams"][0]["unread"]) == (0, [], 1)
    code, detail = veen("verify", *reads)
    assert (code, detail["agreed"], detail["compared"]) == (0, True, 20)

    _meddle(tmp_path / "index" / "current" / "index.sqlite")
    code, detail = veen("verify", *reads)
    assert (code, detail["agreed"], detail["differences"][0]["seq"]) == (INTEGRITY, False, 7)
    code, detail = veen("rebuild", *reads)
    assert (code, detail["agreed"], detail["entries"]) == (0, False, 20)
    code, detail = veen("verify", *reads)
    assert (code, detail["agreed"]) == (0, True)


def _meddle(database: Path) -> None:
    db = sqlite3.connect(database)
    db.execute("UPDATE events SET subject_id = 'somebody else' WHERE place & 0xff = 7")
    db.commit()
    db.close()
