"""Derived state made again from the log is the state the hub had."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hub.storage.datadir import DataDir, DataDirLocked
from hub.storage.index import Index
from hub.storage.label_log import Damaged
from hub.storage.reader import LogReader
from support.hub import driven_hub
from veen.captoken import Rate


def proofs(root: Path) -> list[bytes]:
    """Every head, entry, proof and checkpoint that the directory can be asked for."""
    reader, result = LogReader(DataDir(root), driven_hub.LIMITS), []
    for row in sorted(reader.labels(), key=lambda item: item.label):
        for seq in range(1, row.head_seq + 1):
            result.append(reader.receipt(row.label, seq).encode())
            result.append(reader.proof(row.label, seq).encode())
            result.append(reader.inclusion(row.label, seq, row.head_seq).encode())
        result += [checkpoint.encode() for checkpoint in reader.checkpoints(row.label, 1, 99)]
    reader.index.close()
    return result


def test_a_sound_state_agrees(hub_copy: Path) -> None:
    report = driven_hub.rebuild(hub_copy)
    assert (report.agreed, report.labels, report.entries) == (True, 4, 43)


def test_a_lost_state_is_the_same_again(hub_copy: Path, golden_hub: Path) -> None:
    shutil.rmtree(hub_copy / "derived")
    assert not driven_hub.rebuild(hub_copy).agreed
    assert proofs(hub_copy) == proofs(golden_hub)
    assert driven_hub.check(hub_copy).derived == ()
    assert not list(hub_copy.glob("derived.*"))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE labels SET head_seq = head_seq - 1 WHERE label_no = 2",
        "UPDATE entries SET at = at + 1 WHERE label_no = 2 AND seq = 3",
        "UPDATE clients SET client_seq = client_seq + 1",
        "UPDATE buckets SET tokens = tokens + 1",
        "DELETE FROM tokens",
        "DELETE FROM streams",
        "DELETE FROM checkpoints WHERE label_no = 2",
        "DELETE FROM leaves WHERE label_no = 2",
        "UPDATE chunks SET last_ts = 0",
        "UPDATE labels SET closed = 1 WHERE label_no = 2",
        "UPDATE labels SET stream_id = x'00' WHERE label_no = 2",
        "DELETE FROM entries WHERE label_no = 2 AND seq = 24",
    ],
)
def test_a_wrong_row_is_reported_and_repaired(hub_copy: Path, change: str) -> None:
    index = Index(hub_copy / "derived" / "index.sqlite", writable=True)
    index._db.execute(change)
    index.close()
    report = driven_hub.check(hub_copy)
    assert report.ok
    assert all(item.endswith("run `veen hub rebuild`") for item in report.derived)
    assert report.derived
    assert not driven_hub.rebuild(hub_copy).agreed
    assert driven_hub.check(hub_copy).derived == ()


def test_damaged_nodes_are_reported_and_repaired(hub_copy: Path, golden_hub: Path) -> None:
    for path in hub_copy.glob("derived/nodes-*"):
        path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    assert len(driven_hub.check(hub_copy).derived) == 4
    assert len(driven_hub.rebuild(hub_copy).differed) == 4
    assert proofs(hub_copy) == proofs(golden_hub)


def test_a_file_that_is_no_index_is_replaced(hub_copy: Path) -> None:
    (hub_copy / "derived" / "index.sqlite").write_bytes(b"not an index" * 1000)
    assert driven_hub.check(hub_copy).derived
    assert not driven_hub.rebuild(hub_copy).agreed
    assert driven_hub.check(hub_copy).derived == ()


def test_rates_are_rebuilt_over_all_labels(hub_bench: Any) -> None:
    client = driven_hub.a_key("client")
    token = hub_bench.authorize(client, Rate(per_sec=1, burst=4))
    for stream in (*driven_hub.STREAMS, *driven_hub.STREAMS):
        hub_bench.send(client, stream, token)
        hub_bench.now += 2
    before = hub_bench.committer.log.index.bucket(token.auth_ref())
    hub_bench.stop()
    shutil.rmtree(hub_bench.datadir.derived)
    driven_hub.rebuild(hub_bench.root)
    hub_bench.start()
    assert hub_bench.committer.log.index.bucket(token.auth_ref()) == before
    hub_bench.stop()


def test_a_fault_of_the_log_changes_nothing(hub_copy: Path) -> None:
    path = driven_hub.the(hub_copy, "log/*.log")
    path.write_bytes(path.read_bytes()[:-1])
    before = (hub_copy / "derived" / "index.sqlite").read_bytes()
    with pytest.raises(Damaged, match="veen hub verify"):
        driven_hub.rebuild(hub_copy)
    assert (hub_copy / "derived" / "index.sqlite").read_bytes() == before


def test_receipts_the_index_knows_are_not_forgotten(hub_copy: Path) -> None:
    path = driven_hub.the(hub_copy, "log/*-00000000000000000017.open")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged, match="receipts up to 24"):
        driven_hub.rebuild(hub_copy)


def test_a_torn_tail_is_left_to_recovery(hub_copy: Path) -> None:
    path = driven_hub.the(hub_copy, "log/*-00000000000000000017.open")
    path.write_bytes(path.read_bytes() + b"\x01\x00torn")
    assert driven_hub.rebuild(hub_copy).agreed


def test_a_first_entry_that_was_never_whole_leaves_no_label(hub_copy: Path) -> None:
    path = hub_copy / "log" / f"chunk-{'ab' * 32}-{1:020d}.open"
    path.write_bytes(b"\x01\x00torn")
    assert driven_hub.rebuild(hub_copy).agreed
    assert not path.exists()
    assert driven_hub.the(hub_copy, "evidence/tail-*").read_bytes() == b"\x01\x00torn"
    driven_hub.Bench(hub_copy, now=driven_hub.START + 10**6).stop()


def test_a_swap_that_crashed_half_way_is_taken_up(hub_copy: Path) -> None:
    (hub_copy / "derived").rename(hub_copy / "derived.old")
    assert driven_hub.rebuild(hub_copy).agreed
    assert not (hub_copy / "derived.old").exists()


def test_refused_beside_a_hub(hub_bench: Any) -> None:
    with pytest.raises(DataDirLocked):
        driven_hub.rebuild(hub_bench.root)
    hub_bench.stop()
