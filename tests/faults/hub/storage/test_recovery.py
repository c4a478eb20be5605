"""Starting after a stop of any kind: torn tails are cut, anything the hub signed is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hub.storage.label_log import Damaged
from hub.storage.log import IndexMissing
from support.hub import driven_hub
from support.long_form import LONG


@pytest.fixture
def filled(hub_bench: Any) -> Any:
    """A hub with five entries in the open chunk of one label, stopped."""
    client = driven_hub.a_key("client")
    token = hub_bench.authorize(client)
    hub_bench.send(client, driven_hub.STREAMS[0], token, 13)
    hub_bench.label_hex = hub_bench.label(driven_hub.STREAMS[0]).hex()
    hub_bench.open_chunk = hub_bench.root / "log" / f"chunk-{hub_bench.label_hex}-{9:020d}.open"
    hub_bench.stop()
    return hub_bench


def head_seq(bench: Any) -> int:
    return int(bench.committer.log.label(bench.label(driven_hub.STREAMS[0])).head_seq)


def test_a_tail_torn_at_any_byte_is_cut_and_kept(filled: Any) -> None:
    """What follows the acknowledged entries is an entry whose write did not end."""
    whole = filled.open_chunk.read_bytes()
    size = len(whole) // 5
    torn = whole[-size:]
    for cut in range(1, size, 1 if LONG else 23):
        filled.open_chunk.write_bytes(whole + torn[:cut])
        report = filled.verify()
        assert (report.ok, len(report.notes)) == (True, 1)
        filled.start()
        assert head_seq(filled) == 13
        filled.stop()
        assert filled.open_chunk.read_bytes() == whole
        stored = (filled.root / "evidence").glob(f"tail-{filled.label_hex}-14-*.bin")
        assert torn[:cut] in [item.read_bytes() for item in stored]
    assert filled.verify().derived == ()


def test_a_log_cut_behind_a_receipt_is_refused(filled: Any) -> None:
    whole = filled.open_chunk.read_bytes()
    size = len(whole) // 5
    for keep in (len(whole) - 1, len(whole) - size, size + 7, 0):
        filled.open_chunk.write_bytes(whole[:keep])
        with pytest.raises(Damaged, match="receipts up to 13"):
            filled.start()
        assert [fault.code for fault in filled.verify().faults] in (["FRAME"], ["MISSING"])
        filled.open_chunk.write_bytes(whole)
    filled.start()
    filled.stop()


def restored_index(bench: Any, copy: Path, count: int) -> tuple[Any, Any]:
    """Put back derived files that were copied before the last ``count`` messages; who sent them."""
    client = driven_hub.a_key("client")
    token = bench.authorize(client)
    bench.send(client, driven_hub.STREAMS[0], token, 2)
    bench.stop()
    shutil.copytree(bench.datadir.derived, copy)
    bench.start()
    bench.send(client, driven_hub.STREAMS[0], token, count)
    bench.stop()
    shutil.rmtree(bench.datadir.derived)
    shutil.copytree(copy, bench.datadir.derived)
    return client, token


def test_an_index_older_than_the_log_catches_up(hub_bench: Any, tmp_path: Path) -> None:
    client, token = restored_index(hub_bench, tmp_path / "old", 4)
    assert hub_bench.verify().ok
    assert hub_bench.verify().derived
    hub_bench.start()
    assert head_seq(hub_bench) == 6
    assert isinstance(hub_bench.send(client, driven_hub.STREAMS[0], token)[0], bytes)
    hub_bench.stop()
    assert hub_bench.verify().derived == ()


def test_an_index_before_the_last_seal_is_refused(hub_bench: Any, tmp_path: Path) -> None:
    restored_index(hub_bench, tmp_path / "old", 9)
    with pytest.raises(Damaged):
        hub_bench.start()
    assert not driven_hub.rebuild(hub_bench.root).agreed
    hub_bench.start()
    assert head_seq(hub_bench) == 11
    hub_bench.stop()


def test_a_log_behind_its_checkpoint_is_refused_even_with_its_own_index(
    hub_bench: Any, tmp_path: Path
) -> None:
    client = driven_hub.a_key("client")
    token = hub_bench.authorize(client)
    hub_bench.send(client, driven_hub.STREAMS[0], token, 2)
    hub_bench.stop()
    shutil.copytree(hub_bench.root, tmp_path / "old")
    hub_bench.start()
    hub_bench.send(client, driven_hub.STREAMS[0], token, 3)
    hub_bench.committer.checkpoint(hub_bench.label(driven_hub.STREAMS[0]), 5, hub_bench.now)
    hub_bench.stop()
    for path in (*hub_bench.datadir.derived.iterdir(), *hub_bench.datadir.log.glob("*.open")):
        shutil.copy(tmp_path / "old" / path.relative_to(hub_bench.root), path)
    with pytest.raises(Damaged, match="behind this hub's own checkpoint at 5"):
        hub_bench.start()
    with pytest.raises(Damaged, match="checkpoint at 5"):
        driven_hub.rebuild(hub_bench.root)
    assert [fault.code for fault in hub_bench.verify().faults] == ["MISSING"]


def test_without_derived_state_the_hub_says_how_to_make_it(filled: Any) -> None:
    shutil.rmtree(filled.datadir.derived)
    filled.datadir.create()
    with pytest.raises(IndexMissing, match="veen hub rebuild"):
        filled.start()
    assert filled.verify().ok
    driven_hub.rebuild(filled.root)
    filled.start()
    assert head_seq(filled) == 13
    filled.stop()


def test_a_seal_without_its_rename_is_finished(filled: Any) -> None:
    sealed = driven_hub.the(filled.root, "log/*.log")
    still_open = sealed.with_name(f"chunk-{filled.label_hex}-{1:020d}.open")
    sealed.rename(still_open)
    report = filled.verify()
    assert (report.faults, report.derived, len(report.notes)) == ((), (), 1)
    filled.start()
    filled.stop()
    assert sealed.exists()
    sealed.rename(still_open)
    assert driven_hub.rebuild(filled.root).agreed
    assert sealed.exists()
    assert filled.verify().ok
