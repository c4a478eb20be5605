"""What is particular to the directory: faults of the disk, strangers' files, modes, leftovers."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import SUPPORT
from veen.objects.files import FileObjects, StoreLayout
from veen.objects.port import ObjectDamaged, ObjectMissing, StoreError, StoreRefused
from veen.system.filelock import locked

SCRIPT = SUPPORT / "objects" / "disk_faults.py"


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    result = StoreLayout(tmp_path / "store")
    result.prepare()
    return result


@pytest.fixture
def objects(layout: StoreLayout) -> FileObjects:
    return FileObjects(layout)


@pytest.mark.parametrize("kind", ["before", "after", "eio", "enospc"])
def test_no_fault_of_the_disk_loses_or_tears_an_object(kind: str, quick_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, quick_folder / "run", kind],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *wrong, summary = done.stdout.splitlines()
    assert wrong == []
    assert int(summary.split()[0]) > 60


def test_objects_are_private_and_read_only(layout: StoreLayout, objects: FileObjects) -> None:
    objects.put("a/b", b"x")
    file = layout.objects / "a%" / "b"
    assert stat.S_IMODE(file.stat().st_mode) == 0o400
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_does_not_list_what_is_no_object(layout: StoreLayout, objects: FileObjects) -> None:
    objects.put("a/b", b"x")
    (layout.objects / "unmarked").mkdir()
    (layout.objects / "unmarked" / "file").write_bytes(b"")
    (layout.objects / "100%").write_bytes(b"")
    (layout.objects / os.fsdecode(b"\xff")).write_bytes(b"")
    (layout.objects / "link").symlink_to("/etc/passwd")
    (layout.objects / "linked%").symlink_to(layout.objects / "a%")
    assert list(objects.keys()) == ["a/b"]


def test_does_not_follow_a_link_out_of_the_store(layout: StoreLayout, objects: FileObjects) -> None:
    (layout.objects / "link").symlink_to("/etc/passwd")
    with pytest.raises(StoreRefused):
        objects.get("link")
    with pytest.raises(StoreRefused):
        objects.put("link", b"x")


def test_drops_leftovers_only_when_nobody_writes(layout: StoreLayout) -> None:
    left = layout.staging / "put-left"
    left.write_bytes(b"half of an object")
    with locked(layout.staging_lock, shared=True):
        StoreLayout(layout.root).prepare()
        assert left.exists()
    StoreLayout(layout.root).prepare()
    assert not left.exists()


def test_a_file_that_changes_while_it_is_put_is_not_stored(
    objects: FileObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"before")
    lock = fcntl.flock

    def change_and_lock(handle: int, kind: int) -> None:
        source.write_bytes(b"after!")
        lock(handle, kind)

    monkeypatch.setattr(fcntl, "flock", change_and_lock)
    with pytest.raises(ObjectDamaged):
        objects.put_file("a", source)
    monkeypatch.undo()
    with pytest.raises(ObjectMissing):
        objects.get("a")


def test_refuses_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(StoreError):
        StoreLayout(tmp_path / "store").prepare()
