"""H20: what an index without room did not take, the hub does not know either."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hub.storage.label_log import LabelLog
from support.hub import driven_hub, small_disk
from veen.label import DEFAULT_PROFILE, EpochLabels, routing_key
from veen.log.entry import StreamRecord, control_label
from veen.system.durable import NoSpace

STREAM = StreamRecord(name="record/new", profile=DEFAULT_PROFILE)


@contextmanager
def full_index(bench: Any) -> Iterator[None]:
    """SQLite itself finds no page for the next row, as on a full disk."""
    db: sqlite3.Connection = bench.committer.log.index._db
    _fill_free_pages(db)
    try:
        yield
    finally:
        db.execute("PRAGMA max_page_count = 1073741823")
        db.execute("DROP TABLE filler")


def _fill_free_pages(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE filler (x)")
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    for _ in range(1_000):
        try:
            db.execute("INSERT INTO filler VALUES (zeroblob(2000))")
        except sqlite3.OperationalError:
            return
    raise AssertionError("the index never became full")


def long_stream() -> StreamRecord:
    return StreamRecord(name="record/" + "n" * 200, profile=DEFAULT_PROFILE)


def register_until_full(bench: Any) -> str:
    """The name of the first stream that finds no room."""
    for number in range(100):
        name = f"extra/{number}-" + "n" * 200
        try:
            bench.committer.register(StreamRecord(name=name, profile=DEFAULT_PROFILE), bench.now)
        except NoSpace:
            return name
    raise AssertionError("the index never became full")


def names(bench: Any) -> set[str]:
    return {stream.name for stream in bench.committer.log.registry.streams()}


def test_h20_a_registered_stream_survives_a_restart_after_a_full_index(hub_bench: Any) -> None:
    stream = long_stream()
    with full_index(hub_bench):
        refused = register_until_full(hub_bench)
        assert refused not in names(hub_bench), "memory knows a stream that the log does not have"
        with pytest.raises(NoSpace):
            hub_bench.committer.register(StreamRecord(name=refused, profile=DEFAULT_PROFILE), 1)
    hub_bench.committer.register(StreamRecord(name=refused, profile=DEFAULT_PROFILE), hub_bench.now)
    hub_bench.committer.register(stream, hub_bench.now)
    before = names(hub_bench)
    hub_bench.restart()
    assert names(hub_bench) == before
    assert {refused, stream.name} <= before
    hub_bench.stop()
    report = hub_bench.verify()
    assert (report.faults, report.derived) == ((), ())


def test_h20_a_label_is_named_only_when_the_index_says_so(tmp_path: Path) -> None:
    """A label that came before its stream's name, on a disk with one block more each time."""
    causes: list[type] = []
    with small_disk.mounted(tmp_path / "disk", inodes=400, size="2m") as disk:
        bench, blocks = driven_hub.Bench(disk / "hub"), small_disk.Blocks(disk)
        keys = bench.committer.log.keys
        labels = EpochLabels(routing_key(keys.hub_id), STREAM.stream_id(), STREAM.profile)
        label_log = bench.committer.log.ensure_label(labels.at(0), bench.now)
        # With its label in the index, the record needs room in the log first, then in the index.
        bench.committer.log.ensure_label(control_label(keys.hub_id), bench.now)
        while stream_of(label_log) is None:
            assert STREAM.name not in names(bench)
            blocks.take_all_but(len(causes))
            try:
                bench.committer.register(STREAM, bench.now)
            except NoSpace as error:
                causes.append(type(error.__cause__))
            blocks.give_back()
        assert (stream_of(label_log), STREAM.name in names(bench)) == (STREAM.stream_id(), True)
        bench.stop()
    assert {OSError, sqlite3.OperationalError} == set(causes)


def stream_of(label_log: LabelLog) -> bytes | None:
    return label_log.stream_id
