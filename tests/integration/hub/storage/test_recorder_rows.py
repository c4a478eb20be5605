"""Stored recorder checkpoints by their rows: a crash between file and row, lost rows, growth."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hub.storage.checkpoints import RecorderFiles
from hub.storage.index import Index
from support.hub import driven_hub
from support.hub.counted import counted_calls, scans, traced
from veen.log.layout import parse_recorder_checkpoint
from veen.recorder_checkpoint import RecorderCheckpoint

STREAM = driven_hub.STREAMS[0]


@pytest.fixture
def filled(hub_bench: Any) -> Any:
    hub_bench.client = driven_hub.a_key("client")
    hub_bench.token = hub_bench.authorize(hub_bench.client)
    hub_bench.send(hub_bench.client, STREAM, hub_bench.token)
    return hub_bench


def compose(bench: Any, count: int = 1) -> list[RecorderCheckpoint]:
    documents = []
    for _ in range(count):
        bench.now += 1
        documents.append(bench.committer.recorder_checkpoint(bytes(32), bench.now, force=True))
    return documents


def stored(bench: Any) -> list[RecorderCheckpoint]:
    """The oracle: every file of the directory, in the order of names."""
    names = [name for name in bench.datadir.recorder_names() if parse_recorder_checkpoint(name)]
    return [
        RecorderCheckpoint.decode(bench.datadir.file(name).read_bytes()) for name in sorted(names)
    ]


def listed(bench: Any, after: int = 0, limit: int = 100) -> list[RecorderCheckpoint]:
    with closing(Index(bench.datadir.index, writable=False)) as index:
        return list(RecorderFiles(bench.datadir, lambda: index).after(after, limit))


def latest(bench: Any) -> RecorderCheckpoint | None:
    with closing(Index(bench.datadir.index, writable=False)) as index:
        return RecorderFiles(bench.datadir, lambda: index).latest()


def test_a_document_whose_row_is_missing_gets_it_at_the_start(filled: Any) -> None:
    compose(filled, 3)
    filled.stop()
    db = sqlite3.connect(filled.datadir.index)
    db.execute("DELETE FROM recorder_checkpoints WHERE created_at = ?", (filled.now,))
    db.commit()
    db.close()
    assert latest(filled) != stored(filled)[-1]
    filled.start()
    filled.stop()
    assert listed(filled) == stored(filled)
    assert latest(filled) == stored(filled)[-1]


def test_a_row_whose_document_was_taken_away_goes_at_the_start(filled: Any) -> None:
    compose(filled, 3)
    filled.stop()
    Path(max(filled.datadir.recorder.iterdir())).unlink()
    filled.start()
    filled.stop()
    assert listed(filled) == stored(filled)
    assert len(listed(filled)) == 2


@pytest.mark.parametrize("version", [1, 5])
def test_an_index_of_an_earlier_version_lists_what_is_stored(filled: Any, version: int) -> None:
    compose(filled, 4)
    filled.stop()
    driven_hub.put_back_index(filled.datadir, version)
    filled.start()
    filled.stop()
    assert listed(filled) == stored(filled)
    assert filled.verify().derived == ()


def test_a_rebuilt_index_lists_what_is_stored(filled: Any) -> None:
    compose(filled, 4)
    filled.stop()
    driven_hub.rebuild(filled.root)
    filled.start()
    filled.stop()
    assert listed(filled) == stored(filled)


def test_pages_are_those_of_the_files(filled: Any) -> None:
    times = [document.created_at for document in compose(filled, 9)]
    for after in (0, times[0] - 1, times[0], times[4], times[-1]):
        for limit in (1, 3, 100):
            due = [item for item in stored(filled) if item.created_at > after][:limit]
            assert listed(filled, after, limit) == due
    filled.stop()


def test_the_latest_costs_the_same_after_many(filled: Any) -> None:
    costs = []
    for count in (5, 200):
        compose(filled, count)
        with closing(Index(filled.datadir.index, writable=False)) as index:
            files = RecorderFiles(filled.datadir, lambda index=index: index)  # type: ignore[misc]
            files.latest()
            costs.append(counted_calls(files.latest))
            with traced(index._db) as statements:
                files.latest()
                list(files.after(filled.now - 3, 2))
            assert [scan for item in statements for scan in scans(index._db, item)] == []
    assert costs[1] <= costs[0] + 10
    filled.stop()
