"""The catalogue of stored checkpoints: what the files say, whatever happened to it, at one cost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.checkpoints.catalogue import (
    CheckpointCatalogue,
    RecorderCheckpointName,
    files,
    parse_name,
)
from recorder.checkpoints.store import CheckpointDirectory, CheckpointStore
from support.recorder import anchor_documents

Name = RecorderCheckpointName
HUB_ID = anchor_documents.HUB.hub_id


def a_name(number: int) -> Name:
    return Name(1_000 + number, number.to_bytes(2, "big") * 16)


def listed(home: CheckpointDirectory) -> list[Name]:
    """The names by the directories alone."""
    names = map(parse_name, {*files(home.checkpoints), *files(home.unstored)})
    return sorted(name for name in names if name is not None)


def catalogued(home: CheckpointDirectory) -> list[Name]:
    with home.catalogue.reading() as names:
        result = list(names.newest_first())[::-1]
        assert names.count() == len(result)
    return result


def add(home: CheckpointDirectory, name: Name) -> None:
    with home.catalogue.changing(name):
        (home.checkpoints / name.file).write_bytes(b"")


def by_hand(home: CheckpointDirectory, change: Callable[[], object]) -> None:
    """Change the directory as an operator does: later than any change of ours."""
    later = home.checkpoints.stat().st_mtime_ns + 10_000_000
    change()
    os.utime(home.checkpoints, ns=(later, later))


def killed(work: Callable[[], None]) -> None:
    """Run work in a process that ends without another step."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(9)
    os.waitpid(child, 0)


@pytest.fixture
def home(tmp_path: Path) -> CheckpointDirectory:
    home = CheckpointDirectory(tmp_path / "home")
    home.make()
    return home


def end_while_writing(home: CheckpointDirectory, name: Name, *, written: bool) -> None:
    def work() -> None:
        with home.catalogue.changing(name):
            if written:
                (home.checkpoints / name.file).write_bytes(b"")
            os._exit(9)

    killed(work)


@pytest.mark.parametrize("written", [False, True])
def test_a_kill_between_file_and_row_loses_and_invents_nothing(
    home: CheckpointDirectory, written: bool
) -> None:
    add(home, a_name(1))
    end_while_writing(home, a_name(2), written=written)
    expected = [a_name(1), a_name(2)] if written else [a_name(1)]
    assert catalogued(home) == listed(home) == expected
    add(home, a_name(3))
    assert catalogued(home) == listed(home) == [*expected, a_name(3)]


def test_a_write_that_fails_leaves_no_row(home: CheckpointDirectory) -> None:
    with pytest.raises(OSError, match="disk"), home.catalogue.changing(a_name(1)):
        raise OSError("disk")
    assert catalogued(home) == []


def test_an_older_directory_has_no_catalogue(home: CheckpointDirectory) -> None:
    for number in (3, 1, 2):
        (home.checkpoints / a_name(number).file).write_bytes(b"")
    (home.unstored / a_name(4).file).write_bytes(b"")
    assert catalogued(home) == [a_name(number) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"no database at all, but long enough to be read" * 9),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 99").close(),
        lambda path: sqlite3.connect(path).execute("DROP TABLE writing").close(),
    ],
)
def test_a_damaged_catalogue_is_discarded(
    home: CheckpointDirectory, damage: Callable[[Path], None]
) -> None:
    add(home, a_name(1))
    damage(home.root / "checkpoints.sqlite")
    assert catalogued(home) == [a_name(1)]
    add(home, a_name(2))
    assert catalogued(home) == [a_name(1), a_name(2)]


def test_a_directory_that_cannot_be_written_is_listed(home: CheckpointDirectory) -> None:
    (home.checkpoints / a_name(1).file).write_bytes(b"")
    (home.root / "checkpoints.sqlite").mkdir()
    assert catalogued(home) == [a_name(1)]


def test_a_directory_that_does_not_exist_holds_nothing(tmp_path: Path) -> None:
    store = CheckpointStore(CheckpointDirectory(tmp_path / "none"), HUB_ID, None)
    assert (store.names(), store.count(), store.starting("", 2)) == ([], 0, [])
    assert store.latest() is None
    assert not (tmp_path / "none").exists()


def test_sees_what_an_operator_adds_and_removes(home: CheckpointDirectory) -> None:
    add(home, a_name(1))
    by_hand(home, lambda: (home.checkpoints / a_name(2).file).write_bytes(b""))
    assert catalogued(home) == [a_name(1), a_name(2)]
    by_hand(home, (home.checkpoints / a_name(1).file).unlink)
    assert catalogued(home) == [a_name(2)]


class Machine:
    """Steps on a directory; a step is a kind and a number."""

    def __init__(self, home: CheckpointDirectory) -> None:
        self.home = home

    def step(self, kind: str, number: int) -> None:
        name, home = a_name(number), self.home
        path, late = home.checkpoints / name.file, home.unstored / name.file
        if kind == "add":
            add(home, name)
        elif kind == "move" and late.exists():
            with home.catalogue.changing(name):
                late.rename(path)
        elif kind == "late":
            with home.catalogue.changing(name):
                late.write_bytes(b"")
        elif kind == "copied":
            by_hand(home, lambda: path.write_bytes(b""))
        elif kind == "removed":
            by_hand(home, lambda: path.unlink(missing_ok=True))
        elif kind.startswith("killed"):
            end_while_writing(home, name, written=kind == "killed late")


KINDS = ["add", "move", "late", "copied", "removed", "killed early", "killed late"]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 12)), max_size=12), st.data())
def test_says_what_the_directories_say(steps: list[tuple[str, int]], data: Any) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        home = CheckpointDirectory(root)
        home.make()
        machine, store = Machine(home), CheckpointStore(home, HUB_ID, None)
        for kind, number in steps:
            machine.step(kind, number)
            expected = listed(home)
            assert store.names() == expected
            limit = data.draw(st.integers(0, 4))
            assert store.newest(limit) == expected[len(expected) - min(limit, len(expected)) :]
            prefix = a_name(number).checkpoint_id.hex()[: data.draw(st.integers(0, 4))]
            matching = [name for name in expected if name.checkpoint_id.hex().startswith(prefix)]
            assert sorted(store.starting(prefix, 20)) == matching
    finally:
        shutil.rmtree(root)


class Operations:
    """Counts the files opened and the directories listed while it is active."""

    def __init__(self) -> None:
        self.count: dict[str, int] = {}
        self._is_active = True
        sys.addaudithook(self._heard)

    def stop(self) -> dict[str, int]:
        self._is_active = False
        return self.count

    def _heard(self, event: str, _args: tuple[Any, ...]) -> None:
        if self._is_active and event in ("os.listdir", "open", "sqlite3.connect", "os.scandir"):
            self.count[event] = self.count.get(event, 0) + 1


def store_of(root: Path, size: int) -> CheckpointStore:
    """A directory of an earlier release with so many checkpoints, read once; the last is real."""
    home = CheckpointDirectory(root)
    home.make()
    for number in range(size - 1):
        (home.checkpoints / a_name(number).file).write_bytes(b"")
    store = CheckpointStore(home, HUB_ID, None)
    store.put(anchor_documents.a_checkpoint())
    return store


def cost(work: Callable[[], object]) -> dict[str, int]:
    operations = Operations()
    work()
    return operations.stop()


def test_reads_cost_the_same_for_any_history(tmp_path: Path) -> None:
    small, large = store_of(tmp_path / "small", 5), store_of(tmp_path / "large", 3_000)
    later = anchor_documents.a_checkpoint(anchor_documents.START + 9)
    for work in (
        lambda store: store.latest(),
        lambda store: store.newest(3),
        lambda store: store.count(),
        lambda store: store.starting("0001", 2),
        lambda store: list(islice(store.newest_first(), 3)),
        lambda store: store.put(later),
    ):
        spent = [cost(partial(work, store)) for store in (small, large)]
        assert spent[0] == spent[1]
        assert "os.listdir" not in spent[0]


def steps_of(home: CheckpointDirectory, read: Callable[[Any], object]) -> int:
    """How many times ten virtual machine instructions of SQLite a read takes."""
    with home.catalogue.reading() as names:
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        names._db.set_progress_handler(tick, 10)
        read(names)
    return count


def test_a_read_takes_as_many_steps_of_sqlite_for_any_history(tmp_path: Path) -> None:
    small, large = (store_of(tmp_path / str(size), size).home for size in (150, 3_000))
    for read in (
        lambda names: names.count(),
        lambda names: list(islice(names.newest_first(), 100)),
        lambda names: names.starting("0001", 2),
    ):
        assert steps_of(large, read) <= steps_of(small, read) + 1


def test_no_query_scans_the_catalogue(home: CheckpointDirectory) -> None:
    add(home, a_name(1))
    plans: list[str] = []
    with home.catalogue.reading() as names:
        traced: list[str] = []
        names._db.set_trace_callback(traced.append)
        list(names.newest_first())
        names.starting("0001", 2)
        names._db.set_trace_callback(None)
        for query in traced:
            plans += [row[3] for row in names._db.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert plans
    assert not [plan for plan in plans if plan.startswith("SCAN")], plans


def test_is_of_its_directories_alone(tmp_path: Path) -> None:
    catalogue = CheckpointCatalogue(
        tmp_path / "x.sqlite", (tmp_path / "a", tmp_path / "b"), tmp_path / "lock"
    )

    def names() -> Iterator[Name]:
        with catalogue.reading() as held:
            yield from held.newest_first()

    assert list(names()) == []
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / a_name(1).file).write_bytes(b"")
    assert list(names()) == [a_name(1)]
