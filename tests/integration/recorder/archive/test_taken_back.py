"""Entries that a hub logs and takes back, since its index finds no room, are never archived."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hub.storage.reader import LogWriter
from recorder.archive.push import Pushed, push
from recorder.archive.source import PushSource
from support.hub.driven_hub import STREAMS, Bench, a_key
from support.recorder import archive_carry
from veen.limits import Limits
from veen.objects.port import Store

GROUP = 200
"""Entries at once: more than fit into the pages that the index has."""


class Killed(BaseException):
    """As the end of the process would come, between two of its steps."""


class AtTheMoment:
    """Does something once entries are logged and synced, before they are indexed."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what

    def appended(self, seconds: float) -> None:  # noqa: ARG002 - the port's word
        self._what()

    def checkpointed(self, entries: int) -> None: ...


class Driven:
    """A hub with three entries in one label, and its archive."""

    def __init__(self, root: Path, store: Store) -> None:
        self.bench = Bench(root, limits=Limits())
        self.stream, self.client = STREAMS[0], a_key("carol")
        self.token = self.bench.authorize(self.client)
        self.store = store
        assert all(isinstance(item, bytes) for item in self.submit(3))

    @property
    def label(self) -> bytes:
        result: bytes = self.bench.label(self.stream)
        return result

    @property
    def log(self) -> Any:
        return self.bench.committer.log

    def submit(self, count: int) -> Any:
        return self.bench.send(self.client, self.stream, self.token, count)

    def size(self) -> int:
        (opened,) = self.bench.datadir.log.glob(f"chunk-{self.label.hex()}-*.open")
        return int(opened.stat().st_size)

    def push(self) -> Pushed:
        with LogWriter(self.bench.datadir) as hub:
            source = PushSource(self.bench.root, Limits(), hub)
            return push(source, self.store, sealer=None, progress=lambda *_: None)

    def archived(self) -> int:
        archive = archive_carry.archive_of(self.store)
        label_ref = archive.latest().ref(self.label)
        return 0 if label_ref is None else int(label_ref.end_seq)

    def fill_the_disk(self) -> None:
        """SQLite itself says that there is no room for one more page of the index."""
        db = self.log.index._db
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")

    def make_room(self) -> None:
        self.log.index._db.execute("PRAGMA max_page_count = 1000000")


@pytest.fixture
def driven_hub(tmp_path: Path, file_store: Store) -> Driven:
    return Driven(tmp_path / "hub", file_store)


def test_a_push_in_the_moment_before_entries_are_taken_back_leaves_them(
    driven_hub: Driven, tmp_path: Path
) -> None:
    result, sizes = driven_hub, []
    result.push()
    assert result.archived() == 3
    before, sent = result.size(), dict(result.bench.sent)

    def push_now() -> None:
        sizes.append(result.size())
        result.push()

    result.log.observer = AtTheMoment(push_now)
    result.fill_the_disk()
    assert not any(isinstance(item, bytes) for item in result.submit(GROUP))
    # Logged and synced when the push looked, and gone again now.
    assert sizes[0] > before == result.size()
    assert result.archived() == 3

    result.make_room()
    result.bench.sent |= sent
    result.bench.now += 10
    assert all(isinstance(item, bytes) for item in result.submit(2))
    assert len(sizes) == 2
    result.push()
    assert result.archived() == 5
    result.bench.stop()
    archive_carry.restore(result.store, tmp_path / "restored")
    restored = archive_carry.files(tmp_path / "restored")
    assert archive_carry.files(result.bench.root).items() <= restored.items()


def test_what_a_killed_hub_had_logged_is_archived_and_the_next_hub_keeps_it(
    driven_hub: Driven,
) -> None:
    driven = driven_hub

    def end() -> None:
        raise Killed

    driven.log.observer = AtTheMoment(end)
    with pytest.raises(Killed):
        driven.submit(2)
    driven.push()
    # While the hub runs nobody can say that they stay; the index has three.
    assert driven.archived() == 3
    driven.bench.stop()
    driven.push()
    assert driven.archived() == 5
    driven.bench.start()
    assert driven.log.label(driven.label).head_seq == 5
    driven.push()
    assert driven.archived() == 5
    driven.bench.stop()


def test_what_was_archived_once_is_archived_still_when_the_index_has_lost_it(
    driven_hub: Driven,
) -> None:
    """A power cut can take the last transactions of the index; a start learns them from the log."""
    driven = driven_hub
    driven.push()
    driven.log.index._db.execute("UPDATE labels SET head_seq = 1")
    driven.push()
    assert driven.archived() == 3
    driven.bench.stop()


def test_without_an_index_all_that_a_stopped_hub_has_logged_counts(driven_hub: Driven) -> None:
    driven = driven_hub
    driven.bench.stop()
    for path in driven.bench.datadir.derived.iterdir():
        path.unlink()
    driven.push()
    assert driven.archived() == 3
    assert list(driven.bench.datadir.derived.iterdir()) == []
