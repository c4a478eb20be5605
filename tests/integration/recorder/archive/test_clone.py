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
    recorded: Any,
    data: Path,
    store: Store,
    s3: Store,
    other: Store,
    tmp_path: Path,
) -> None:
    archive_carry.push(data, store)
    there = clone(store, s3, recorded.hub_id, progress=archive_carry.quiet)
    back = clone(s3, other, recorded.hub_id, progress=archive_carry.quiet)
    assert (
        archive_carry.contents(store) == archive_carry.contents(s3) == archive_carry.contents(other)
    )
    assert there.new_objects == back.new_objects == len(archive_carry.contents(store))
    assert {archive_carry.archive_of(item).head().value for item in (store, s3, other)} == {
        there.manifest
    }
    archive_carry.restore(other, tmp_path / "again")
    assert archive_carry.files(tmp_path / "again") == archive_carry.files(data)


def test_a_clone_follows_and_a_second_one_writes_nothing(
    recorded: Any, data: Path, store: Store, other: Store, tmp_path: Path
) -> None:
    archive_carry.push(data, store)
    clone(store, other, recorded.hub_id, progress=archive_carry.quiet)
    archive_carry.keygen(tmp_path / "me")
    archive_carry.push(data, store, archive_carry.sealer(tmp_path / "me"))
    result = clone(store, other, recorded.hub_id, progress=archive_carry.quiet)
    assert (result.new_objects, result.lost) == (2, 0)
    assert archive_carry.contents(store) == archive_carry.contents(other)
    assert clone(store, other, recorded.hub_id, progress=archive_carry.quiet).new_objects == 0
    behind = open_store(FileSettings(tmp_path / "behind"))
    archive_carry.push(data, behind)
    with pytest.raises(OldCopy, match="a state of this hub that the source store lacks"):
        clone(behind, other, recorded.hub_id, progress=archive_carry.quiet)


def test_a_clone_that_was_cut_off_goes_on(
    recorded: Any, data: Path, store: Store, other: Store
) -> None:
    archive_carry.push(data, store)

    class Enough(Exception):
        pass

    def stop(done: int, _total: int | None) -> None:
        if done == 20:
            raise Enough

    with pytest.raises(Enough):
        clone(store, other, recorded.hub_id, progress=stop)
    assert archive_carry.archive_of(other).head().value is None
    assert len(archive_carry.contents(other)) == 20
    result = clone(store, other, recorded.hub_id, progress=archive_carry.quiet)
    assert result.new_objects == result.objects - 20
    assert archive_carry.contents(store) == archive_carry.contents(other)


def test_other_bytes_in_the_other_store_are_refused(
    recorded: Any, data: Path, store: Store, other: Store
) -> None:
    archive_carry.push(data, store)
    key = next(key for key in archive_carry.contents(store) if key.endswith(".log"))
    other.objects.put(key, b"not a chunk")
    with pytest.raises(Untrusted):
        clone(store, other, recorded.hub_id, progress=archive_carry.quiet)
    assert archive_carry.archive_of(other).head().value is None


def test_what_is_missing_is_told_and_what_only_the_past_had_is_counted(
    recorded: Any,
    data: Path,
    folder: Path,
    store: Store,
    other: Store,
    tmp_path: Path,
) -> None:
    first = archive_carry.push(data, store)
    archive_carry.keygen(tmp_path / "me")
    archive_carry.push(data, store, archive_carry.sealer(tmp_path / "me"))
    delete = FileRetention(StoreLayout(folder)).delete
    archive = archive_carry.archive_of(store)
    delete(archive.keys.version(first.manifest))
    result = clone(store, other, recorded.hub_id, progress=archive_carry.quiet)
    assert archive_carry.checked(other, read_all=True).ok
    assert result.lost == 0
    delete(next(key for key in archive_carry.contents(store) if key.endswith(".log")))
    third = open_store(FileSettings(tmp_path / "third"))
    with pytest.raises(ObjectMissing):
        clone(store, third, recorded.hub_id, progress=archive_carry.quiet)
    assert archive_carry.archive_of(third).head().value is None
