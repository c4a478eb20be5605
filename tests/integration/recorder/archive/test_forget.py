"""Earlier states are forgotten on demand: what any state that stays needs is never deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.archive.gc import (
    Forgettable,
    Keeping,
    forget,
    forgettable,
    objects_of_manifest,
    past_states,
)
from recorder.archive.store import HubArchive
from support.recorder import archive_carry
from veen.limits import Limits
from veen.log.chunk import read_entries
from veen.objects.files import FileRetention, StoreLayout
from veen.objects.port import Retention, Store


@pytest.fixture
def retention(store_folder: Path) -> Retention:
    return FileRetention(StoreLayout(store_folder))


@pytest.fixture
def grown(stopped_hub: Any, hub_data: Path, file_store: Store) -> HubArchive:
    """An archive that was pushed after each of the last entries of an open chunk."""
    label = stopped_hub.writers["record/b"].label
    opened = next((hub_data / "log").glob(f"chunk-{label.hex()}-*.open"))
    raw = opened.read_bytes()
    ends = [*[at for at, _, _ in read_entries(raw, Limits())][1:], len(raw)]
    for end in ends:
        opened.write_bytes(raw[:end])
        archive_carry.push(hub_data, file_store)
    archive: HubArchive = archive_carry.archive_of(file_store)
    assert len(states(archive)) == len(ends) >= 5
    return archive


def states(archive: HubArchive) -> list[Any]:
    with_hash = archive.latest_with_hash()
    return [with_hash, *past_states(archive, with_hash[1])]


def needed(archive: HubArchive, count: int) -> set[str]:
    """What the last states stand on."""
    stored = states(archive)[:count]
    return {object_.key for state in stored for object_ in objects_of_manifest(archive, *state)}


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_only_what_no_kept_state_needs_is_deleted(
    grown: HubArchive,
    hub_data: Path,
    file_store: Store,
    retention: Retention,
    tmp_path: Path,
    keep: int,
) -> None:
    before, due, count = archive_carry.contents(file_store), needed(grown, keep), len(states(grown))
    result = forgettable(grown, Keeping(keep))
    assert (result.stored, result.states) == (keep, count - keep)
    assert set(result.keys) == before.keys() - due
    assert result.size == sum(len(before[key]) for key in result.keys)
    kinds = {key.removeprefix(grown.keys.prefix).partition("/")[0] for key in result.keys}
    assert kinds == {"tail", "version"}
    forget(retention, result, archive_carry.quiet)
    assert archive_carry.contents(file_store) == {key: before[key] for key in due}
    assert archive_carry.checked(file_store, read_all=True).ok
    archive_carry.restore(file_store, tmp_path / "again")
    assert archive_carry.files(tmp_path / "again") == archive_carry.files(hub_data)
    assert forgettable(grown, Keeping(keep)).keys == ()
    assert archive_carry.push(hub_data, file_store).new_objects == 0


def test_a_young_state_stays(grown: HubArchive) -> None:
    count = len(states(grown))
    assert forgettable(grown, Keeping(1, since=0)).stored == count
    assert forgettable(grown, Keeping(1, since=2**60)).stored == 1
    with pytest.raises(ValueError, match="always stays"):
        Keeping(0)


def test_what_nobody_names_is_left_alone(
    grown: HubArchive, file_store: Store, retention: Retention
) -> None:
    """A push that runs meanwhile puts objects before any state names them."""
    key = grown.keys.version(bytes(32))
    file_store.objects.put(key, b"just put")
    forget(retention, forgettable(grown, Keeping(1)), archive_carry.quiet)
    assert key in archive_carry.contents(file_store)


class Enough(Exception):
    pass


def stopping_at(count: int) -> Callable[[int, int | None], None]:
    def stop(done: int, _total: int | None) -> None:
        if done == count:
            raise Enough

    return stop


def test_cut_off_anywhere_a_second_run_takes_the_rest(
    grown: HubArchive, file_store: Store, retention: Retention
) -> None:
    due = needed(grown, 2)
    left = len(forgettable(grown, Keeping(2)).keys)
    while left:
        result: Forgettable = forgettable(grown, Keeping(2))
        assert len(result.keys) == left
        with pytest.raises(Enough):
            forget(retention, result, stopping_at(1))
        left -= 1
        assert archive_carry.checked(file_store).ok
    assert archive_carry.contents(file_store).keys() == due


def test_the_command_tells_first_and_deletes_when_asked(
    grown: HubArchive, store_folder: Path, file_store: Store
) -> None:
    before = archive_carry.contents(file_store)
    words = ("archive", "forget", "--store", store_folder.as_uri(), "--keep", "2")
    result = archive_carry.veen(*words)
    assert result.returncode == 0, result.stderr
    assert "nothing was deleted: give --delete" in result.stderr
    assert archive_carry.contents(file_store) == before
    done = archive_carry.veen(*words, "--delete", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["deleted"], document["remaining_states"]) == (True, 2)
    assert document["objects"] == len(before) - len(archive_carry.contents(file_store)) > 0
    assert archive_carry.checked(file_store, read_all=True).ok


def test_younger_states_stay_by_the_clock(
    grown: HubArchive, store_folder: Path, file_store: Store
) -> None:
    words = ("archive", "forget", "--store", store_folder.as_uri(), "--keep", "1", "--json")
    done = archive_carry.veen(*words, "--keep-sec", str(10**9))
    assert json.loads(done.stdout)["objects"] == 0
    assert json.loads(archive_carry.veen(*words).stdout)["objects"] > 0
