"""How far push, verify, restore and clone have come: told for every object, however few labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.console import Pulse, progress
from recorder.archive.clone import clone
from recorder.archive.push import push
from recorder.archive.restore import restore
from recorder.archive.source import PushSource
from recorder.archive.verify import check
from support.recorder import archive_carry
from veen.limits import Limits
from veen.objects.port import FileSettings, Store
from veen.objects.store import open_store


class Seen:
    """All that was told."""

    def __init__(self) -> None:
        self.detail: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.detail.append((done, total))

    def check(self, least: int) -> None:
        """It never goes back, moves often, and ends where it said that it would."""
        done = [item for item, _ in self.detail]
        assert done == sorted(done)
        assert len(set(done)) >= least
        assert all(item <= total for item, total in self.detail)
        assert self.detail[-1][0] == self.detail[-1][1] > 0


def work(data: Path, store: Store, tmp_path: Path) -> dict[str, Any]:
    """The four, each to be given a way to tell how far it is."""
    archive = archive_carry.archive_of
    return {
        "push": lambda tell: push(PushSource(data, Limits()), store, sealer=None, progress=tell),
        "verify": lambda tell: check(archive(store), read_all=False, progress=tell),
        "restore": lambda tell: restore(
            archive(store), tmp_path / "again", seeds=lambda _: {}, limits=Limits(), progress=tell
        ),
        "clone": lambda tell: clone(
            store, open_store(FileSettings(tmp_path / "other")), archive(store).keys.hub_id,
            progress=tell,
        ),
    }  # fmt: skip


def test_every_object_is_reported(
    stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    labels = len({path.name.split("-")[1] for path in (hub_data / "log").glob("chunk-*")})
    for run in work(hub_data, file_store, tmp_path).values():
        seen = Seen()
        run(seen)
        seen.check(least=4 * labels)


def test_a_line_is_printed_off_a_terminal_long_before_the_end(
    stopped_hub: Any,
    hub_data: Path,
    file_store: Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As if every object took the ten seconds after which a line is due."""
    for name, run in work(hub_data, file_store, tmp_path).items():
        with progress(name, "objects", Pulse(every_sec=0.0)) as report:
            run(report)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) > 12
        assert all(line.startswith(f"{name}: ") and " of " in line for line in lines)
