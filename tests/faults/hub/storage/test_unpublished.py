"""What a start takes for a checkpoint to complete, and what it refuses to build upon."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub.storage import identity
from hub.storage.index import Index
from hub.storage.label_log import Damaged
from hub.storage.log import IndexMissing
from support.hub import driven_hub
from veen.checkpoint import Checkpoint


@pytest.fixture
def half_published(hub_bench: Any, crash_at: Any) -> Any:
    """A hub of seventeen entries that ended with the file of a checkpoint at 11, and no line."""
    client, hub_bench.stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    hub_bench.send(client, hub_bench.stream, hub_bench.authorize(client), 17)
    with crash_at(9):
        hub_bench.committer.checkpoint(hub_bench.label(hub_bench.stream), 11, hub_bench.now)
    hub_bench.stop()
    hub_bench.half = driven_hub.the(hub_bench.root, f"log/checkpoint-*{11:020d}.cbor")
    return hub_bench


def forget(bench: Any) -> None:
    """The row of the checkpoint, as a power cut would."""
    index = Index(bench.datadir.index, writable=True)
    index._db.execute("DELETE FROM checkpoints WHERE upto_seq = 11")
    index.close()


def test_verify_tells_of_it_until_the_start(half_published: Any) -> None:
    assert {fault.code for fault in half_published.verify().faults} == {"INDEX", "BINDING"}
    half_published.start()
    half_published.stop()
    assert half_published.verify().ok


def test_no_sealed_chunk_is_read_to_complete_it(half_published: Any) -> None:
    sealed = {path: path.read_bytes() for path in half_published.datadir.log.glob("*.log")}
    assert len(sealed) == 2
    for path in sealed:
        path.write_bytes(b"")
    half_published.start()
    half_published.stop()
    for path, before in sealed.items():
        path.write_bytes(before)
    assert half_published.verify().ok


def test_a_row_that_a_power_cut_took_binds_nothing_twice(half_published: Any) -> None:
    half_published.start()
    half_published.stop()
    manifest = half_published.root / "checkpoint-binding.cborseq"
    before = manifest.read_bytes()
    forget(half_published)
    half_published.start()
    half_published.stop()
    assert manifest.read_bytes() == before
    assert half_published.verify().derived == ()


def test_what_a_killed_process_wrote_is_synced_before_it_is_built_upon(
    half_published: Any, crash_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry has no receipt yet; the client who sends it again is told that it is here."""
    half_published.start()
    client = driven_hub.a_key("another client")
    token = half_published.authorize(client)
    with crash_at(2):
        half_published.send(client, half_published.stream, token)
    half_published.stop()
    forget(half_published)
    synced = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def noted(fd: int, real: Any = real) -> None:
            synced.append(Path(f"/proc/self/fd/{fd}").readlink())
            real(fd)

        monkeypatch.setattr(os, name, noted)
    half_published.start()
    half_published.stop()
    label = half_published.label(half_published.stream).hex()
    due = ("log", f"log/chunk-{label}-{17:020d}.open", "checkpoint-binding.cborseq")
    assert {half_published.root / name for name in due} <= set(synced)
    assert half_published.verify().derived == ()


def test_a_write_that_never_ended_leaves_nothing(half_published: Any) -> None:
    left = half_published.half.with_name(f".{half_published.half.name}.new")
    left.write_bytes(half_published.half.read_bytes()[:40])
    half_published.start()
    half_published.stop()
    assert not left.exists()
    assert half_published.verify().notes == ()


def test_one_ahead_of_the_log_is_refused(hub_bench: Any, crash_at: Any, tmp_path: Path) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    token = hub_bench.authorize(client)
    hub_bench.send(client, stream, token, 2)
    hub_bench.stop()
    shutil.copytree(hub_bench.root, tmp_path / "old")
    hub_bench.start()
    hub_bench.send(client, stream, token, 3)
    with crash_at(9):
        hub_bench.committer.checkpoint(hub_bench.label(stream), 5, hub_bench.now)
    hub_bench.stop()
    for path in (*hub_bench.datadir.derived.iterdir(), *hub_bench.datadir.log.glob("*.open")):
        shutil.copy(tmp_path / "old" / path.relative_to(hub_bench.root), path)
    with pytest.raises(Damaged, match="behind this hub's own checkpoint at 5"):
        hub_bench.start()


def test_one_that_is_damaged_is_refused(half_published: Any) -> None:
    before = half_published.half.read_bytes()
    for at in (0, 1, 40, 75, len(before) - 1):
        raw = bytearray(before)
        raw[at] ^= 1
        half_published.half.write_bytes(raw)
        with pytest.raises(Damaged, match="veen hub verify"):
            half_published.start()
    half_published.half.write_bytes(before)
    half_published.start()
    half_published.stop()
    assert half_published.verify().ok


def test_one_that_another_hub_signed_is_refused(half_published: Any) -> None:
    checkpoint = Checkpoint.decode(half_published.half.read_bytes())
    half_published.half.write_bytes(checkpoint.signed(driven_hub.a_key("another hub")).encode())
    with pytest.raises(Damaged, match="not a checkpoint of this log"):
        half_published.start()


def test_one_of_another_root_is_refused(half_published: Any) -> None:
    """Even by the hub's own key: it would fork the log."""
    checkpoint = Checkpoint.decode(half_published.half.read_bytes())
    forged = replace(checkpoint, mmr_root=bytes(32)).signed(
        identity.load(half_published.datadir).current
    )
    half_published.half.write_bytes(forged.encode())
    with pytest.raises(Damaged, match="not a checkpoint of this log"):
        half_published.start()


def test_one_of_a_label_that_the_index_does_not_know_is_refused(
    hub_bench: Any, tmp_path: Path
) -> None:
    """An index from before the label, whose epoch has ended since and left no open chunk."""
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    token = hub_bench.authorize(client)
    hub_bench.stop()
    shutil.copytree(hub_bench.datadir.derived, tmp_path / "old")
    hub_bench.start()
    hub_bench.send(client, stream, token, 3)
    hub_bench.committer.tick(hub_bench.now + 7_200)
    hub_bench.stop()
    shutil.rmtree(hub_bench.datadir.derived)
    shutil.copytree(tmp_path / "old", hub_bench.datadir.derived)
    with pytest.raises(IndexMissing, match="veen hub rebuild"):
        hub_bench.start()
    driven_hub.rebuild(hub_bench.root)
    hub_bench.start()
    hub_bench.stop()
    assert hub_bench.verify().ok
