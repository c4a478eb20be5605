"""Views of closed epochs: each stored once in a file of its own, which state.json names."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from veen.client.session import ClientState, LabelView, load_state, save_state
from veen.digest import h
from veen.errors import BadState
from veen.invariants import ClientCursor
from veen.mmr import EMPTY

HUB_ID = h(b"hub")
OPEN_EPOCHS = 4


def label(epoch: int, stream: str = "record/a") -> bytes:
    return h(f"{stream} {epoch}".encode())


def a_view(epoch: int, stream: str = "record/a", sent: int = 1) -> LabelView:
    view = LabelView(hub_id=HUB_ID, stream=stream, epoch=epoch, peaks=EMPTY.append(h(b"x")))
    return view.with_cursor(h(b"client"), ClientCursor(sent, 0))


def filled(path: Path, epochs: int) -> ClientState:
    state = load_state(path)
    for epoch in range(epochs):
        state = save_state(path, state.with_view(label(epoch), a_view(epoch)))
    return state


def stored(path: Path) -> dict[bytes, LabelView]:
    return dict(load_state(path).views.items())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    return tmp_path / "closed-views.sqlite"


def test_a_kill_between_the_two_files_loses_nothing(path: Path, closed: Path) -> None:
    """The rows are durable, and state.json is the one before."""
    for epochs in (4, 9):
        before = filled(path, epochs)
        whole = path.read_bytes()
        after = save_state(path, before.with_view(label(epochs), a_view(epochs)))
        expected = dict(after.views.items())
        path.write_bytes(whole)
        assert stored(path) == {
            name: expected[name] for name in list(expected) if name != label(epochs)
        }
        again = save_state(path, load_state(path).with_view(label(epochs), a_view(epochs)))
        assert stored(path) == dict(again.views.items()) == expected
        path.unlink()


def test_a_kill_while_rows_are_written_loses_nothing(path: Path, closed: Path) -> None:
    state = filled(path, 8)
    child = os.fork()
    if child == 0:
        db = sqlite3.connect(closed, isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM views")
        db.execute("PRAGMA cache_spill = 1")
        os._exit(9)
    os.waitpid(child, 0)
    assert stored(path) == dict(state.views)
    assert len(stored(path)) == 8


def test_a_missing_file_is_not_taken_as_no_views(path: Path, closed: Path) -> None:
    filled(path, 8)
    closed.unlink()
    state = load_state(path)
    assert state.views[label(7)] == a_view(7)
    for read in (lambda: state.views.get(label(0)), lambda: dict(state.views)):
        with pytest.raises(BadState, match=r"missing.*resync"):
            read()
    with pytest.raises(BadState, match="missing"):
        save_state(path, state.with_view(label(8), a_view(8)))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3_000])


def other_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 9")


def bad_row(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE views SET view = '{}'")


def other_copy(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE owner SET token = 'another'")


@pytest.mark.parametrize("damage", [truncate, other_version, bad_row, other_copy])
def test_a_damaged_file_is_named_and_nothing_is_read_from_it(
    path: Path, closed: Path, damage: Callable[[Path], None]
) -> None:
    filled(path, 8)
    damage(closed)
    with pytest.raises(BadState, match="closed-views"):
        load_state(path).views.get(label(0))


def test_a_file_that_no_state_names_is_never_read(path: Path, closed: Path) -> None:
    filled(path, 8)
    path.unlink()
    assert stored(path) == {}
    state = filled(path, 6)
    assert set(stored(path)) == set(state.views) == {label(epoch) for epoch in range(6)}


def test_a_state_of_version_1_is_read_and_its_closed_epochs_move(path: Path, closed: Path) -> None:
    views = {label(epoch): a_view(epoch) for epoch in range(30)}
    save_state(path, ClientState(views=views))
    document = json.loads(path.read_bytes())
    assert (document["ver"], len(document["labels"])) == (2, OPEN_EPOCHS)
    # The same in the form of an earlier release: everything in one file.
    with closing(sqlite3.connect(closed)) as db:
        rows = db.execute("SELECT label, view FROM views").fetchall()
    whole = {**document["labels"], **{name.hex(): json.loads(view) for name, view in rows}}
    path.write_text(json.dumps({"ver": 1, "hubs": {}, "labels": whole}))
    closed.unlink()
    assert stored(path) == views
    save_state(path, load_state(path))
    assert stored(path) == views
    assert len(json.loads(path.read_bytes())["labels"]) == OPEN_EPOCHS


def test_streams_without_epochs_are_as_they_were(path: Path, closed: Path) -> None:
    views = {label(0, f"record/{number}"): a_view(0, f"record/{number}") for number in range(50)}
    save_state(path, ClientState(views=views))
    assert (stored(path), closed.exists()) == (views, False)
    assert json.loads(path.read_bytes())["ver"] == 1


def test_a_closed_view_that_changes_is_stored(path: Path) -> None:
    state = filled(path, 20)
    changed = a_view(3, sent=7)
    state = save_state(path, state.with_view(label(3), changed))
    assert state.views[label(3)] == stored(path)[label(3)] == changed
    assert len(stored(path)) == 20


def test_a_directory_can_be_copied_and_renamed(path: Path, tmp_path: Path) -> None:
    state = filled(path, 9)
    names = {item.name for item in tmp_path.iterdir()}
    assert names == {"state.json", "closed-views.sqlite"}
    copy = tmp_path.with_name(tmp_path.name + "-copy")
    shutil.copytree(tmp_path, copy)
    assert stored(copy / "state.json") == dict(state.views)


@pytest.mark.parametrize("seed", range(8))
def test_says_what_one_file_would_say(path: Path, seed: int) -> None:
    rng, state = random.Random(seed), ClientState()
    expected: dict[bytes, LabelView] = {}
    for turn in range(60):
        stream, epoch = f"record/{rng.randrange(3)}", max(0, turn // 2 - rng.randrange(12))
        expected[label(epoch, stream)] = a_view(epoch, stream, sent=turn)
        state = save_state(path, state.with_view(label(epoch, stream), a_view(epoch, stream, turn)))
        if rng.random() < 0.3:
            state = load_state(path)
        assert dict(state.views) == expected
        assert (len(state.views), state.views.get(b"?")) == (len(expected), None)
    assert stored(path) == expected


def written(work: Callable[[], object]) -> int:
    """The bytes that some work writes, as the kernel counts them."""

    def count() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("wchar")).split()[1])

    before = count()
    work()
    return count() - before


def test_a_save_writes_as_much_after_any_number_of_epochs(tmp_path: Path) -> None:
    costs = []
    for epochs in (20, 3_000):
        path = tmp_path / str(epochs) / "state.json"
        path.parent.mkdir()
        views = {label(epoch): a_view(epoch) for epoch in range(epochs)}
        state = save_state(path, ClientState(views=views))
        changed = state.with_view(label(epochs - 1), a_view(epochs - 1, sent=2))
        same = written(partial(save_state, path, changed))
        new = written(partial(save_state, path, state.with_view(label(epochs), a_view(epochs))))
        costs.append((same, new, len(path.read_bytes())))
    (same, new, size), (late_same, late_new, late_size) = costs
    assert late_same <= same + 100
    assert late_new <= 2 * new
    assert late_size <= size + 100


def test_a_start_opens_no_closed_view(path: Path, closed: Path) -> None:
    filled(path, 12)
    closed.write_bytes(b"")
    assert load_state(path).views[label(11)] == a_view(11)
