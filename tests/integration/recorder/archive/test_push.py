"""Pushing a stopped hub: what goes, what stays, and what is refused."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hub.settings import load as load_settings
from hub.storage import identity, retention
from hub.storage.datadir import DataDir
from recorder.archive.push import OldCopy
from support.hub import spec_objects
from support.recorder import archive_carry
from veen.errors import Untrusted, VeenError
from veen.limits import Limits
from veen.log.chunk import read_entries
from veen.log.entry import Entry
from veen.log.layout import parse_chunk
from veen.objects.port import Store


def prune(data: Path, toml: Path, count: int) -> list[Any]:
    """Let retention take the oldest chunks of the label that has a rule."""
    settings, now = load_settings(toml), int(time.time()) + 3 * 86_400
    due = retention.plan_retention(DataDir(data), settings.retention, settings.streams, now)[:count]
    assert len(due) == count
    return retention.prune(DataDir(data), due, limits=settings.limits, move_to=None, now=now)


def test_a_second_push_writes_nothing(hub_data: Path, file_store: Store) -> None:
    first = archive_carry.push(hub_data, file_store)
    before, head = archive_carry.contents(file_store), archive_carry.archive_of(file_store).head()
    second = archive_carry.push(hub_data, file_store)
    assert (second.new_objects, second.manifest) == (0, first.manifest)
    assert (archive_carry.contents(file_store), archive_carry.archive_of(file_store).head()) == (
        before,
        head,
    )
    assert first.new_objects == len(before) > 30
    assert first.new_bytes == sum(map(len, before.values()))


def test_a_push_after_a_seal_adds_only_what_is_new(
    stopped_hub: Any,
    hub_data: Path,
    file_store: Store,
    run_hub: Callable[[Path], Any],
    tmp_path: Path,
) -> None:
    archive_carry.push(hub_data, file_store)
    before = archive_carry.contents(file_store)
    old, hub = stopped_hub.writers["logs/a"], run_hub(hub_data)
    client = hub.client()
    writer = client.writer(spec_objects.key("alice"), "logs/a")
    writer.seq, writer.prev_ack = old.seq, old.prev_ack
    client.submit_batch([writer.msg(b"more") for _ in range(9)])
    hub.stop()
    pushed = archive_carry.push(hub_data, file_store)
    after = archive_carry.contents(file_store)
    assert {key: after[key] for key in before} == before
    assert pushed.new_objects == len(after) - len(before)
    new = [key.partition("/log/")[2] for key in after if key not in before and "/log/" in key]
    assert {name.split("-")[0] for name in new} == {"chunk", "peaks", "checkpoint"}
    assert [item for item in new if item.endswith(".log")] == [
        f"chunk-{old.label.hex()}-{31:020}-{40:020}.log"
    ]
    assert archive_carry.checked(file_store, read_all=True).ok
    archive_carry.restore(file_store, tmp_path / "again")
    assert archive_carry.files(tmp_path / "again") == archive_carry.files(hub_data)


def test_a_chunk_pruned_after_it_was_archived_stays_in_the_archive(
    stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, file_store)
    chunks = {key for key in archive_carry.contents(file_store) if key.endswith(".log")}
    assert prune(hub_data, stopped_hub.toml, 2)
    archive_carry.push(hub_data, file_store)
    label = archive_carry.archive_of(file_store).label(
        archive_carry.archive_of(file_store).latest(), stopped_hub.label
    )
    assert label is not None
    assert [segment.is_pruned for segment in label.segments] == [False, False, False]
    assert chunks <= set(archive_carry.contents(file_store))
    assert archive_carry.checked(file_store, read_all=True).ok
    archive_carry.restore(file_store, tmp_path / "again", keys=hub_data / "keys")
    assert archive_carry.files(tmp_path / "again") == archive_carry.files(hub_data)
    assert archive_carry.audit(tmp_path / "again", stopped_hub.toml).ok


def test_a_chunk_pruned_before_it_was_archived_is_reported_by_its_tombstone(
    stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    whole = archive_carry.audit(hub_data, stopped_hub.toml).heads
    prune(hub_data, stopped_hub.toml, 2)
    archive_carry.push(hub_data, file_store)
    label = archive_carry.archive_of(file_store).label(
        archive_carry.archive_of(file_store).latest(), stopped_hub.label
    )
    assert label is not None
    assert [segment.is_pruned for segment in label.segments] == [True, True, False]
    assert label.segments[0].first_ts > 0
    assert archive_carry.checked(file_store, read_all=True).ok
    archive_carry.restore(file_store, tmp_path / "again", keys=hub_data / "keys")
    result = archive_carry.audit(tmp_path / "again", stopped_hub.toml)
    assert result.ok
    assert result.heads == whole


def test_an_old_copy_of_the_directory_is_refused(
    stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, file_store)
    head = archive_carry.archive_of(file_store).head()
    archive = archive_carry.archive_of(file_store)
    label = archive.label(archive.latest(), stopped_hub.label)
    assert label is not None
    at = label.parts[1]
    archive_carry.restore(file_store, tmp_path / "old", keys=hub_data / "keys", at=at.first_ts)
    for what in ("behind", "without a label"):
        with pytest.raises(OldCopy):
            archive_carry.push(tmp_path / "old", file_store)
        for path in (tmp_path / "old" / "log").glob(f"*{stopped_hub.label.hex()}*"):
            path.unlink()
        assert archive_carry.archive_of(file_store).head() == head, what


def test_another_branch_of_the_same_hub_is_refused(
    stopped_hub: Any, hub_data: Path, file_store: Store
) -> None:
    """As long as the archived one, every frame sound, and another message in its last place."""
    archive_carry.push(hub_data, file_store)
    before, head = archive_carry.contents(file_store), archive_carry.archive_of(file_store).head()
    opened = next((hub_data / "log").glob(f"chunk-{stopped_hub.label.hex()}-*.open"))
    raw = opened.read_bytes()
    *_, (_, _, other), (at, header, last) = read_entries(raw, Limits())
    swapped = Entry(other.msg_bytes, last.receipt_bytes)
    opened.write_bytes(raw[:at] + swapped.encode(header.label, header.stream_seq))
    with pytest.raises(OldCopy, match="has other entries from 31 on"):
        archive_carry.push(hub_data, file_store)
    assert (archive_carry.contents(file_store), archive_carry.archive_of(file_store).head()) == (
        before,
        head,
    )


def test_a_directory_without_the_latest_key_is_refused(
    hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    shutil.copytree(hub_data, tmp_path / "old")
    identity.rotate(DataDir(hub_data), lambda count: bytes(range(count)), int(time.time()), 0)
    archive_carry.push(hub_data, file_store)
    with pytest.raises(OldCopy, match="has keys of this hub"):
        archive_carry.push(tmp_path / "old", file_store)


def test_damage_in_a_sealed_chunk_is_not_archived(hub_data: Path, file_store: Store) -> None:
    path = next(
        path for path in sorted((hub_data / "log").iterdir()) if parse_chunk(f"log/{path.name}")
    )
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Untrusted, match="is damaged, or is not the chunk of its name"):
        archive_carry.push(hub_data, file_store)
    assert not [key for key in archive_carry.contents(file_store) if key.endswith(path.name)]


def test_a_lost_chunk_is_reported_and_changes_nothing(hub_data: Path, file_store: Store) -> None:
    archive_carry.push(hub_data, file_store)
    before, head = archive_carry.contents(file_store), archive_carry.archive_of(file_store).head()
    next((hub_data / "log").glob("chunk-*.log")).unlink()
    with pytest.raises(VeenError):
        archive_carry.push(hub_data, file_store)
    assert (archive_carry.contents(file_store), archive_carry.archive_of(file_store).head()) == (
        before,
        head,
    )


def test_bytes_after_the_last_whole_entry_are_left_out(
    stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    whole = archive_carry.files(hub_data)
    opened = next((hub_data / "log").glob(f"chunk-{stopped_hub.label.hex()}-*.open"))
    for torn in (opened.read_bytes()[:100], bytes(500)):
        opened.write_bytes(whole[f"log/{opened.name}"] + torn)
        archive_carry.push(hub_data, file_store)
        archive_carry.restore(file_store, tmp_path / f"again {len(torn)}")
        assert archive_carry.files(tmp_path / f"again {len(torn)}") == whole


def test_of_two_that_push_at_once_both_end_well(
    stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    shutil.copytree(hub_data, tmp_path / "twin")
    anies: list[Any] = []
    barrier = threading.Barrier(2)

    def work(root: Path) -> None:
        barrier.wait()
        anies.append(archive_carry.push(root, file_store))

    threads = [
        threading.Thread(target=work, args=(item,)) for item in (hub_data, tmp_path / "twin")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(anies) == 2
    assert {item.manifest for item in anies} == {archive_carry.archive_of(file_store).head().value}
    assert archive_carry.checked(file_store, read_all=True).ok
