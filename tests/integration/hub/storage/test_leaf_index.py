"""Finding a leaf by one keyed read: sealed and open chunks, moves by a seal, and migration."""

from __future__ import annotations

import random
import sqlite3
from typing import Any

import pytest

from hub.storage.index import Index, leaf_key
from hub.storage.reader import LogReader
from support.hub import driven_hub
from support.hub.counted import scans, traced
from veen.log.chunk import read_entries
from veen.receipt import Receipt

PLAIN, EPOCHS = driven_hub.STREAMS


@pytest.fixture
def filled(hub_bench: Any) -> Any:
    """Two labels, each with sealed chunks of 8 entries and some in the open one."""
    hub_bench.client = driven_hub.a_key("client")
    hub_bench.token = hub_bench.authorize(hub_bench.client)
    hub_bench.receipts = [
        Receipt.decode(outcome)
        for stream, count in ((PLAIN, 19), (EPOCHS, 11), (PLAIN, 3))
        for outcome in hub_bench.send(hub_bench.client, stream, hub_bench.token, count)
    ]
    return hub_bench


def places_of(bench: Any, receipt: Receipt) -> list[tuple[bytes, int]]:
    reader = LogReader(bench.datadir, bench.limits)
    places = reader.find_leaf(receipt.leaf_hash)
    reader.close()
    return places


def rows(bench: Any, table: str) -> set[tuple[int, int, int]]:
    index = Index(bench.datadir.index, writable=False)
    try:
        return set(index._db.execute(f"SELECT leaf, label_no, seq FROM {table}"))
    finally:
        index.close()


@pytest.mark.parametrize("version", [1, 2])
def test_an_index_of_an_earlier_version_is_migrated(filled: Any, version: int) -> None:
    filled.stop()
    before = rows(filled, "open_leaves")
    driven_hub.put_back_index(filled.datadir, version)
    assert filled.verify().derived == ()
    filled.start()
    filled.stop()
    assert rows(filled, "open_leaves") == before
    assert all(
        places_of(filled, item) == [(item.label, item.stream_seq)] for item in filled.receipts
    )
    assert filled.verify().derived == ()


@pytest.mark.parametrize("step", range(1, 11))
def test_a_seal_that_crashed_loses_no_leaf(filled: Any, crash_at: Any, step: int) -> None:
    filled.send(filled.client, PLAIN, filled.token, 2)
    with crash_at(step):
        filled.send(filled.client, PLAIN, filled.token)
    filled.restart()
    filled.stop()
    assert all(
        places_of(filled, item) == [(item.label, item.stream_seq)] for item in filled.receipts
    )
    assert filled.verify().derived == ()


@pytest.mark.parametrize("table", ["leaves", "open_leaves"])
def test_a_lost_leaf_is_reported_and_rebuilt(filled: Any, table: str) -> None:
    filled.stop()
    db = sqlite3.connect(filled.datadir.index)
    db.execute(f"DELETE FROM {table} WHERE seq IN (4, 19)")
    db.commit()
    db.close()
    assert [item for item in filled.verify().derived if f"{table} of label" in item]
    driven_hub.rebuild(filled.root)
    assert filled.verify().derived == ()
    assert all(
        places_of(filled, item) == [(item.label, item.stream_seq)] for item in filled.receipts
    )


def test_a_leaf_of_no_entry_is_nowhere(filled: Any) -> None:
    strange = filled.receipts[0].leaf_hash
    reader = LogReader(filled.datadir, filled.limits)
    assert reader.find_leaf(strange[:8] + bytes(24)) == []
    assert reader.find_leaf(bytes(32)) == []
    reader.close()


def test_every_leaf_is_where_the_oracle_says(hub_bench: Any) -> None:
    """Random histories of both streams, with restarts; the oracle reads all chunks."""
    chance = random.Random(5)
    client = driven_hub.a_key("client")
    token = hub_bench.authorize(client)
    for _ in range(60):
        hub_bench.send(client, chance.choice((PLAIN, EPOCHS)), token, chance.randint(1, 5))
        hub_bench.now += chance.choice((0, 0, 900))
        hub_bench.committer.tick(hub_bench.now)
        if chance.random() < 0.1:
            hub_bench.restart()
    oracle: dict[bytes, list[tuple[bytes, int]]] = {}
    for path in hub_bench.datadir.log.glob("chunk-*"):
        if path.suffix != ".summary":
            for _, header, entry in read_entries(path.read_bytes(), hub_bench.limits):
                leaf = entry.receipt().leaf_hash
                oracle.setdefault(leaf, []).append((header.label, header.stream_seq))
    reader = LogReader(hub_bench.datadir, hub_bench.limits)
    assert len(oracle) > 100
    assert {leaf: reader.find_leaf(leaf) for leaf in oracle} == oracle
    reader.close()
    keys = {leaf_key(leaf) for leaf in oracle}
    sealed, unsealed = rows(hub_bench, "leaves"), rows(hub_bench, "open_leaves")
    assert {row[0] for row in sealed | unsealed} == keys
    assert not sealed & unsealed
    hub_bench.stop()


def test_no_statement_of_a_search_scans(filled: Any) -> None:
    reader = LogReader(filled.datadir, filled.limits)
    with traced(reader.index._db) as statements:
        reader.find_leaf(filled.receipts[0].leaf_hash)
        reader.find_leaf(filled.receipts[-1].leaf_hash)
    queries = [statement for statement in statements if statement.startswith("SELECT")]
    assert len(queries) >= 4
    assert [scan for query in queries for scan in scans(reader.index._db, query)] == []
    reader.close()


def test_no_statement_of_a_seal_scans(filled: Any) -> None:
    db = filled.committer.log.index._db
    with traced(db) as statements:
        filled.send(filled.client, PLAIN, filled.token, 9)
    changes = [statement for statement in statements if "leaves" in statement]
    assert [statement for statement in changes if statement.startswith("DELETE")]
    assert [scan for change in changes for scan in scans(db, change)] == []
    filled.stop()
