"""A zone whose files are written by hand, and the page of it."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veen_page_log import recorder_services
from veen_page_overview import overview
from veen_page_render import PageFrame, render
from veen_page_services import ServiceState, opened

from bridge.importer.directory import ImportDirectory
from bridge.importer.ledger import ImportLedger
from recorder.checkpoints.catalogue import RecorderCheckpointName
from recorder.checkpoints.store import CheckpointStore
from veen.recorder_checkpoint import RecorderCheckpoint
from zone.artefacts import Artefact, write
from zone.config import VARIABLE

NOW = 1_794_000_600


class PageZone:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self) -> Any:
        return opened({VARIABLE: str(self.folder / "veen.toml")})

    def overview(self, **changes: Any) -> Any:
        """All of the first page; services are said to be ready unless a test has others."""
        usual: dict[str, Any] = {
            "now": NOW,
            "may_read": lambda _dag_id: True,
            "open_questions": lambda: (),
            "look": lambda item: ServiceState(item.name, item.url, True, True, "ready"),
            "heads": lambda _place: None,
            "random": os.urandom,
        }
        return overview(self.place(), **(usual | changes))

    def html(self, **changes: Any) -> str:
        overview = self.overview(**changes)
        text: str = render(
            "veen_page_overview.html", PageFrame("", NOW), of=overview, zone=overview.zone
        )
        return text

    def keep(self, **changes: Any) -> Artefact:
        usual: dict[str, Any] = {
            "kind": "checkpoint",
            "id": "c" * 64,
            "made_at": NOW * 1000,
            "dag_id": "veen_checkpoint",
            "run_id": "manual__2026-11-16T10:00:00+00:00",
            "task_id": "create",
            "state": "verified",
            "summary": {"streams": 3},
            "path": None,
        }
        artefact = Artefact(**(usual | changes))
        write(self.folder, artefact)
        return artefact

    def keep_many(self, kind: str, count: int) -> None:
        """As ``keep``, without waiting for the disk each time."""
        folder = self.folder / "artefacts" / kind
        folder.mkdir(parents=True)
        for number in range(count):
            item = {
                "kind": kind,
                "id": f"{number:064x}",
                "made_at": NOW * 1000 + number,
                "dag_id": f"veen_{kind}",
                "run_id": f"run-{number}",
                "task_id": "t",
                "state": "imported",
                "summary": {},
                "path": None,
            }
            name = f"{item['made_at']:020d}-{item['id']}.json"
            (folder / name).write_text(json.dumps(item))

    def sign(self, *checkpoints: RecorderCheckpoint) -> None:
        checkpoint_store: CheckpointStore = recorder_services(
            self.place(), os.urandom
        ).checkpoint_store()
        for checkpoint in checkpoints:
            checkpoint_store.put(checkpoint)

    def anchored(self, *checkpoints: RecorderCheckpoint) -> None:
        """Signed, and known to the zone's own ledger of anchors."""
        self.sign(*checkpoints)
        book = recorder_services(self.place(), os.urandom).anchor_scheduler()
        for checkpoint in checkpoints:
            book.do(book.ask(RecorderCheckpointName.of(checkpoint), NOW), NOW)

    def old_anchors(self, count: int) -> None:
        """Checkpoints of long ago by their names alone, each with an anchor: nobody reads them."""
        home = recorder_services(self.place(), os.urandom).home
        home.make()
        for number in range(count):
            name = RecorderCheckpointName(number, number.to_bytes(32, "big"))
            (home.checkpoints / name.file).touch()
            home.anchors_of(name.checkpoint_id).mkdir()
            (home.anchors_of(name.checkpoint_id) / "file-1.cbor").touch()

    def files(self) -> dict[str, bytes | None]:
        """All that lies in the zone's folder."""
        result = {str(path): path for path in sorted(self.folder.rglob("*"))}
        return {
            name: item.read_bytes() if item.is_file() else None for name, item in result.items()
        }

    def bundles(self, count: int, state: str = "imported", detail: str = "") -> ImportDirectory:
        """A ledger with so many bundles in one state."""
        import_dir = ImportDirectory(self.folder / "import")
        import_dir.create()
        ImportLedger(import_dir.ledger).close()
        names, rest = ("record/app/http", "import/record/app/http"), (b"s" * 32, detail)
        rows = [
            (n.to_bytes(32, "big"), state, b"h" * 32, *names, n + 1, n + 1, b"c" * 32, NOW, *rest)
            for n in range(count)
        ]
        runs = [(b"h" * 32, names[0], n + 1, n + 1, row[0], 1, b"") for n, row in enumerate(rows)]
        with sqlite3.connect(import_dir.ledger) as db:
            marks = ", ".join("?" * 11)
            db.executemany(f"INSERT INTO bundles VALUES ({marks})", rows)
            db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", runs)
        db.close()
        return import_dir

    def quarantine(
        self,
        import_dir: ImportDirectory,
        name: str,
        detail: str,
        at: int = NOW,
        received: str = "bag",
    ) -> None:
        folder = import_dir.quarantine(name)
        folder.mkdir(parents=True)
        reason = {"code": "E.BUNDLE/BYTES", "detail": detail, "received": [f"inbox/{received}"]}
        (folder / "reason.json").write_text(json.dumps(reason))
        os.utime(folder, (at, at))


class _Heard:
    """Counts what is opened or listed below a folder; Python tells of each of them."""

    def __init__(self) -> None:
        self.below: Path | None = None
        self.events: tuple[str, ...] = ()
        self.names: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if self.below is None or event not in self.events:
            return
        if str(args[0]).startswith(str(self.below)):
            self.names.append(str(args[0]))


_HEARD = _Heard()


@contextmanager
def opened_below(folder: Path) -> Iterator[list[str]]:
    with _heard_below(folder, "open") as names:
        yield names


@contextmanager
def touched_below(folder: Path) -> Iterator[list[str]]:
    """Files that are opened, databases among them, and folders that are listed."""
    with _heard_below(folder, "open", "os.listdir", "os.scandir") as names:
        yield names


@contextmanager
def _heard_below(folder: Path, *events: str) -> Iterator[list[str]]:
    _HEARD.below, _HEARD.events, _HEARD.names = folder, events, []
    try:
        yield _HEARD.names
    finally:
        _HEARD.below = None
