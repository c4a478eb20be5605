"""Retention takes chunks away, never what they prove."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hub.storage import retention
from hub.storage.datadir import DataDir
from hub.storage.reader import LogReader, Pruned
from hub.storage.retention import (
    Rule,
    SegmentState,
    keep_days,
    manifest,
    parse_rule,
    plan_retention,
    prune,
)
from support.hub import driven_hub
from veen.errors import Failure, Rejected, Untrusted, VeenError
from veen.log import layout
from veen.log.chunk import Tombstone
from veen.log.layout import tombstone_file

DAY = 86_400
POLICY = [Rule("record/*", 30)]


def the_label(root: Path) -> bytes:
    """The label of record/a, with two sealed chunks."""
    return bytes.fromhex(driven_hub.the(root, "log/*-00000000000000000017.open").name.split("-")[1])


def planned(root: Path, policy: list[Rule], days: int) -> list[layout.ChunkName]:
    return plan_retention(DataDir(root), policy, driven_hub.STREAMS, driven_hub.START + days * DAY)


def pruned_once(root: Path, move_to: Path | None = None) -> list[layout.ChunkName]:
    chunks = planned(root, POLICY, 31)
    now = driven_hub.START + 31 * DAY
    return prune(DataDir(root), chunks, limits=driven_hub.LIMITS, move_to=move_to, now=now)


@pytest.mark.parametrize(
    ("stream", "policy", "days"),
    [
        ("export/a", [], None),
        ("export/a", [Rule("export/*", 7)], 7),
        ("export/a", [Rule("export/a", None), Rule("*", 7)], None),
        ("record/a", [Rule("*", 7)], None),
        ("record/a", [Rule("*", 7), Rule("record/*", 30)], 30),
    ],
)
def test_the_first_rule_that_names_a_stream_decides(
    stream: str, policy: list[Rule], days: int | None
) -> None:
    assert keep_days(stream, policy) == days


def test_a_rule_is_days_or_long_term() -> None:
    assert parse_rule("a/*", "long_term") == Rule("a/*", None)
    assert parse_rule("a/*", 3) == Rule("a/*", 3)
    for wrong in (0, -1, "3", None, 1.5, True):
        with pytest.raises(VeenError):
            parse_rule("a/*", wrong)


def test_only_sealed_chunks_wholly_older_are_planned(golden_hub: Path) -> None:
    label = the_label(golden_hub)
    assert planned(golden_hub, [], 1000) == []
    assert planned(golden_hub, [Rule("*", 1)], 1000)[0].label != label
    assert planned(golden_hub, POLICY, 29) == []
    assert planned(golden_hub, POLICY, 31) == [
        layout.ChunkName(label, 1, 8), layout.ChunkName(label, 9, 16)
    ]  # fmt: skip


def test_a_pruned_directory_verifies_and_says_so(hub_copy: Path) -> None:
    chunks = pruned_once(hub_copy)
    assert not any((hub_copy / layout.chunk(name)).exists() for name in chunks)
    report = driven_hub.check(hub_copy)
    assert (report.faults, report.derived) == ((), ())
    assert [layout.chunk(name) in note for name, note in zip(chunks, report.notes, strict=True)]


def test_proofs_outlive_entries(hub_copy: Path, golden_hub: Path) -> None:
    label = the_label(hub_copy)
    pruned_once(hub_copy)
    reader, before = (
        LogReader(DataDir(root), driven_hub.LIMITS) for root in (hub_copy, golden_hub)
    )
    with pytest.raises(Pruned):
        reader.entry(label, 3)
    assert reader.entry(label, 17) == before.entry(label, 17)
    assert reader.proof(label, 3) == before.proof(label, 3)
    assert reader.inclusion(label, 3, 24) == before.inclusion(label, 3, 24)


def test_rebuild_after_pruning_gives_the_same_state(hub_copy: Path, golden_hub: Path) -> None:
    label = the_label(hub_copy)
    pruned_once(hub_copy)
    assert driven_hub.rebuild(hub_copy).agreed
    shutil.rmtree(hub_copy / "derived")
    driven_hub.rebuild(hub_copy)
    assert driven_hub.check(hub_copy).derived == ()
    reader, before = (
        LogReader(DataDir(root), driven_hub.LIMITS) for root in (hub_copy, golden_hub)
    )
    assert reader.inclusion(label, 3, 24) == before.inclusion(label, 3, 24)


def test_the_hub_goes_on_and_knows_duplicates(hub_copy: Path) -> None:
    pruned_once(hub_copy)
    shutil.rmtree(hub_copy / "derived")
    driven_hub.rebuild(hub_copy)
    bench = driven_hub.Bench(hub_copy, now=driven_hub.START + 31 * DAY)
    alice = driven_hub.a_key("alice")
    (outcome,) = bench.send(alice, driven_hub.STREAMS[0], bench.authorize(alice))
    assert isinstance(outcome, Rejected)
    assert (outcome.failure, outcome.stream_seq) == (Failure.DUPLICATE, 1)
    bench.stop()
    assert driven_hub.check(hub_copy).ok


def test_moved_chunks_can_be_put_back(hub_copy: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    for name in pruned_once(hub_copy, archive):
        moved = archive / Path(layout.chunk(name)).name
        tombstone = Tombstone.decode((hub_copy / tombstone_file(name)).read_bytes())
        assert tombstone.moved_to == str(archive)
        shutil.copy(moved, hub_copy / layout.chunk(name))
    report = driven_hub.check(hub_copy)
    assert (report.faults, report.notes, report.derived) == ((), (), ())


def test_pruning_again_after_a_crash_changes_nothing(hub_copy: Path) -> None:
    """The crash came after the tombstone and before the chunk was removed."""
    chunk = driven_hub.the(hub_copy, f"log/chunk-{the_label(hub_copy).hex()}-*-{8:020d}.log")
    raw = chunk.read_bytes()
    pruned_once(hub_copy)
    chunk.write_bytes(raw)
    assert [name.start_seq for name in pruned_once(hub_copy)] == [1]
    assert not chunk.exists()
    assert driven_hub.check(hub_copy).ok


def test_a_hole_is_refused(hub_copy: Path) -> None:
    later = planned(hub_copy, POLICY, 31)[1:]
    with pytest.raises(VeenError, match="must be pruned before"):
        prune(
            DataDir(hub_copy), later, limits=driven_hub.LIMITS, move_to=None, now=driven_hub.START
        )


@pytest.mark.parametrize("kind", ["tombstone-*", "leaves-*", "chunk-*.summary"])
def test_a_flip_in_what_remains_is_found(hub_copy: Path, kind: str) -> None:
    pruned_once(hub_copy)
    path = driven_hub.the(
        hub_copy, f"log/{kind.replace('-*', '-' + the_label(hub_copy).hex() + '*', 1)}"
    )
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert [fault.file for fault in driven_hub.check(hub_copy).faults] == [f"log/{path.name}"]


def test_a_chunk_deleted_by_hand_needs_the_hubs_tombstone(hub_copy: Path) -> None:
    name = pruned_once(hub_copy)[0]
    path = hub_copy / tombstone_file(name)
    path.write_bytes(replace(Tombstone.decode(path.read_bytes()), pruned_at=1).encode())
    assert [fault.code for fault in driven_hub.check(hub_copy).faults] == ["TOMBSTONE"]


def test_the_manifest_is_complete_and_outlives_pruning(hub_copy: Path) -> None:
    label = the_label(hub_copy)
    before = manifest(DataDir(hub_copy), label)
    assert [(segment.start_seq, segment.end_seq) for segment in before.segments] == [
        (1, 8),
        (9, 16),
    ]
    pruned_once(hub_copy)
    after = manifest(DataDir(hub_copy), label)
    assert {segment.state for segment in after.segments} == {SegmentState.PRUNED}
    assert after.root() == before.root()
    (hub_copy / tombstone_file(layout.ChunkName(label, 1, 8))).unlink()
    with pytest.raises(Untrusted, match="no segment holds stream_seq 1"):
        manifest(DataDir(hub_copy), label)


def test_a_copy_that_is_there_with_other_bytes_stops_the_move(
    hub_copy: Path, tmp_path: Path
) -> None:
    name = planned(hub_copy, POLICY, 31)[0]
    (tmp_path / Path(layout.chunk(name)).name).write_bytes(b"other")
    with pytest.raises(VeenError):
        pruned_once(hub_copy, tmp_path)
    assert (hub_copy / layout.chunk(name)).exists()
    assert retention.LONG_TERM == "long_term"
