"""The exporter reads only what is new of its audit log, and notices when the past is another."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.exporter.build import RolledBack
from bridge.exporter.history import ExportHistory
from support.bridge.naive_history import NaiveHistory, naive_history

CHANGES, LOG = "export/z1/changes", "bridge/online/log"


class CountingReader:
    """A reader of the zone that notes from where the log is read."""

    def __init__(self, client: Any, starts: list[int]) -> None:
        self._client = client
        self._starts = starts

    def read(self, stream: str, *, from_seq: int, to_seq: int | None = None) -> Any:
        if stream == LOG:
            self._starts.append(from_seq)
        return self._client.read(stream, from_seq=from_seq, to_seq=to_seq)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@contextmanager
def opened(zone: Any, folder: Path, starts: list[int] | None = None) -> Iterator[ExportHistory]:
    path, bridge_id = folder / "history.sqlite", zone.signer().public
    with zone.client("bridge") as client:
        reader: Any = CountingReader(client, [] if starts is None else starts)
        with ExportHistory.opened(path, bridge_id, reader) as history:
            yield history


def verify_same(history: ExportHistory, naive: NaiveHistory) -> None:
    for stream in (CHANGES, LOG, "export/none"):
        assert history.cursor(stream) == naive.cursor(stream)
        end = naive.cursor(stream).seq
        assert history.roots(stream).last_seq() == naive.roots(stream).last_seq()
        for seq in range(end + 2):
            assert history.root_at(stream, seq) == naive.roots(stream).root_at(seq)
            assert history.overlapping(stream, seq, end) == naive.overlapping(stream, seq, end)
    assert history.ledger() == naive.ledger()
    assert history.begun() == naive.begun()
    assert (history.last_n, history.done_total()) == (len(naive.entries), len(naive.done))


def test_only_what_is_new_is_read(
    fresh: Any, new_medium: Callable[[], Path], tmp_path: Path
) -> None:
    last = fresh.log()[-1].seq
    with opened(fresh, tmp_path):
        pass
    fresh.export(new_medium())
    naive, starts = fresh.past(), list[int]()
    with opened(fresh, tmp_path, starts) as history:
        verify_same(history, naive)
    assert min(starts) == last
    last = fresh.log()[-1].seq
    starts.clear()
    with opened(fresh, tmp_path, starts) as history:
        verify_same(history, naive)
    assert min(starts) == last


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


def no_database(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def run_statement(statement: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db:
            db.execute(statement)
            db.commit()

    return run


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "no database": no_database,
    "removed": Path.unlink,
    "of another version": run_statement("PRAGMA user_version = 99"),
    "of another bridge": run_statement("UPDATE head SET bridge_id = x'00'"),
    "without a cursor": run_statement("DELETE FROM cursors"),
    "an older cursor": run_statement("UPDATE cursors SET to_seq = 1"),
    "without successes": run_statement("DELETE FROM successes"),
    "a changed end": run_statement("UPDATE successes SET to_seq = to_seq + 1"),
    "a document that is none": run_statement("UPDATE successes SET document = '{'"),
    "a changed ledger": run_statement("UPDATE entries SET entry = x'80'"),
    "a lost entry": run_statement("DELETE FROM entries WHERE n = (SELECT max(n) FROM entries)"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_made_again(
    fresh: Any, new_medium: Callable[[], Path], tmp_path: Path, damage: str
) -> None:
    fresh.export(new_medium())
    with opened(fresh, tmp_path):
        pass
    DAMAGES[damage](tmp_path / "history.sqlite")
    naive = fresh.past()
    with opened(fresh, tmp_path) as history:
        verify_same(history, naive)


def test_what_a_run_adds_is_discarded_at_its_end(
    fresh: Any, new_medium: Callable[[], Path], tmp_path: Path
) -> None:
    fresh.export(new_medium())
    naive, checkpoint = fresh.past(), fresh.checkpoint()
    with opened(fresh, tmp_path) as history:
        entry = history.ledger().tail[-1]
        with history.uncommitted():
            following = history.ledger().with_heartbeat(checkpoint).tail[-1]
            history.add_entry(following)
            assert history.begun() == (following,)
            history.add_done(following.n)
            assert history.begun() == ()
        assert history.ledger().tail[-1] == entry
        verify_same(history, naive)


def test_the_cache_of_an_earlier_release_is_removed(fresh: Any, tmp_path: Path) -> None:
    earlier = [tmp_path / "log.jsonl", tmp_path / "log.head"]
    for path in earlier:
        path.write_bytes(b"{}")
    naive = fresh.past()
    with opened(fresh, tmp_path) as history:
        verify_same(history, naive)
    assert not any(path.exists() for path in earlier)


def test_x11_a_log_with_another_past_is_refused(
    fresh: Any, new_medium: Callable[[], Path], tmp_path: Path
) -> None:
    fresh.export(new_medium())
    with opened(fresh, tmp_path):
        pass
    run_statement("UPDATE head SET root = x'1111'")(tmp_path / "history.sqlite")
    with (
        pytest.raises(RolledBack, match="the hub signed two histories"),
        opened(fresh, tmp_path),
    ):
        pass


def test_the_fold_of_a_whole_log_is_the_same(fresh: Any, new_medium: Callable[[], Path]) -> None:
    fresh.export(new_medium())
    log, bridge_id = fresh.log(), fresh.signer().public
    with ExportHistory.folded(log, bridge_id) as history:
        verify_same(history, naive_history(log, bridge_id))
