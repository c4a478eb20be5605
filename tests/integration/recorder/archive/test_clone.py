"""A clone is the same archive in another store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recorder.archive.clone import clone
from recorder.archive.push import OldCopy
from support.recorder import archive_carry
from veen.errors import Untrusted
from veen.objects.files import FileRetention, StoreLayout
from veen.objects.port import FileSettings, ObjectMissing, Store
from veen.objects.store import open_store


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return open_store(FileSettings(tmp_path / "other store"))


def test_a_clone_has_the_same_keys_bytes_and_head(
    stopped_hub: Any,
    hub_data: Path,
    file_store: Store,
    s3_store: Store,
    other: Store,
    tmp_path: Path,
) -> None:
    archive_carry.push(hub_data, file_store)
    there = clone(file_store, s3_store, stopped_hub.hub_id, progress=archive_carry.quiet)
    back = clone(s3_store, other, stopped_hub.hub_id, progress=archive_carry.quiet)
    assert (
        archive_carry.contents(file_store)
        == archive_carry.contents(s3_store)
        == archive_carry.contents(other)
    )
    assert there.new_objects == back.new_objects == len(archive_carry.contents(file_store))
    assert {
        archive_carry.archive_of(item).head().value for item in (file_store, s3_store, other)
    } == {there.manifest}
    archive_carry.restore(other, tmp_path / "again")
    assert archive_carry.files(tmp_path / "again") == archive_carry.files(hub_data)


def test_a_clone_follows_and_a_second_one_writes_nothing(
    stopped_hub: Any, hub_data: Path, file_store: Store, other: Store, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, file_store)
    clone(file_store, other, stopped_hub.hub_id, progress=archive_carry.quiet)
    archive_carry.keygen(tmp_path / "me")
    archive_carry.push(hub_data, file_store, archive_carry.sealer(tmp_path / "me"))
    result = clone(file_store, other, stopped_hub.hub_id, progress=archive_carry.quiet)
    assert (result.new_objects, result.lost) == (2, 0)
    assert archive_carry.contents(file_store) == archive_carry.contents(other)
    assert (
        clone(file_store, other, stopped_hub.hub_id, progress=archive_carry.quiet).new_objects == 0
    )
    behind = open_store(FileSettings(tmp_path / "behind"))
    archive_carry.push(hub_data, behind)
    with pytest.raises(OldCopy, match="a state of this hub that the source store lacks"):
        clone(behind, other, stopped_hub.hub_id, progress=archive_carry.quiet)


def test_a_clone_that_was_cut_off_goes_on(
    stopped_hub: Any, hub_data: Path, file_store: Store, other: Store
) -> None:
    archive_carry.push(hub_data, file_store)

    class Enough(Exception):
        pass

    def stop(done: int, _total: int | None) -> None:
        if done == 20:
            raise Enough

    with pytest.raises(Enough):
        clone(file_store, other, stopped_hub.hub_id, progress=stop)
    assert archive_carry.archive_of(other).head().value is None
    assert len(archive_carry.contents(other)) == 20
    result = clone(file_store, other, stopped_hub.hub_id, progress=archive_carry.quiet)
    assert result.new_objects == result.objects - 20
    assert archive_carry.contents(file_store) == archive_carry.contents(other)


def test_other_bytes_in_the_other_store_are_refused(
    stopped_hub: Any, hub_data: Path, file_store: Store, other: Store
) -> None:
    archive_carry.push(hub_data, file_store)
    key = next(key for key in archive_carry.contents(file_store) if key.endswith(".log"))
    other.objects.put(key, b"not a chunk")
    with pytest.raises(Untrusted):
        clone(file_store, other, stopped_hub.hub_id, progress=archive_carry.quiet)
    assert archive_carry.archive_of(other).head().value is None


def test_what_is_missing_is_reported_and_what_only_the_past_had_is_counted(
    stopped_hub: Any,
    hub_data: Path,
    store_folder: Path,
    file_store: Store,
    other: Store,
    tmp_path: Path,
) -> None:
    first = archive_carry.push(hub_data, file_store)
    archive_carry.keygen(tmp_path / "me")
    archive_carry.push(hub_data, file_store, archive_carry.sealer(tmp_path / "me"))
    delete = FileRetention(StoreLayout(store_folder)).delete
    archive = archive_carry.archive_of(file_store)
    delete(archive.keys.version(first.manifest))
    result = clone(file_store, other, stopped_hub.hub_id, progress=archive_carry.quiet)
    assert archive_carry.checked(other, read_all=True).ok
    assert result.lost == 0
    delete(next(key for key in archive_carry.contents(file_store) if key.endswith(".log")))
    third = open_store(FileSettings(tmp_path / "third"))
    with pytest.raises(ObjectMissing):
        clone(file_store, third, stopped_hub.hub_id, progress=archive_carry.quiet)
    assert archive_carry.archive_of(third).head().value is None
