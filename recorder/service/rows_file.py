"""The rows of a result on disk: canonical JSON, one row a line, with the place of each line.

A page is read by the places alone, so it costs what the page holds, whatever the result holds,
and no page can change the order that rows_hash speaks of (Query API 7.4).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from recorder.query.json_text import read_row
from veen import canonical_json, durable

_ROWS: Final = "rows.jsonl"
_OFFSETS: Final = "offsets"
_WIDTH: Final = 8


class RowsWriter:
    """Writes a result beside its place, and puts it there once it is whole and on disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._draft = directory.with_name(f".{directory.name}.new")
        shutil.rmtree(self._draft, ignore_errors=True)
        durable.make_directory(self._draft)
        self._rows = (self._draft / _ROWS).open("wb")
        self._offsets = (self._draft / _OFFSETS).open("wb")

    def through(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same rows, each written on its way."""
        for row in rows:
            self._offsets.write(self._rows.tell().to_bytes(_WIDTH, "big"))
            self._rows.write(canonical_json.encode(row) + b"\n")
            yield row

    def add_file(self, name: str, content: bytes) -> None:
        durable.write(self._draft / name, content)

    def add_copy(self, name: str, source: Path) -> None:
        """The same for a file that need not fit into memory."""
        shutil.copyfile(source, self._draft / name)
        with (self._draft / name).open("rb") as file:
            durable.sync(file.fileno())

    def finish(self) -> None:
        for file in (self._rows, self._offsets):
            file.flush()
            durable.sync(file.fileno())
            file.close()
        durable.sync_directory(self._draft)
        shutil.rmtree(self._directory, ignore_errors=True)
        durable.rename(self._draft, self._directory)

    def abandon(self) -> None:
        for file in (self._rows, self._offsets):
            file.close()
        shutil.rmtree(self._draft, ignore_errors=True)


class RowsFile:
    """A finished result."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def count(self) -> int:
        return (self._directory / _OFFSETS).stat().st_size // _WIDTH

    def page(self, offset: int, limit: int) -> list[bytes]:
        """The canonical JSON of rows from ``offset`` on, in the one order that there is."""
        count = min(limit, max(0, self.count() - offset))
        if count == 0:
            return []
        with (self._directory / _OFFSETS).open("rb") as places:
            start = _place(places, offset)
        with (self._directory / _ROWS).open("rb") as file:
            file.seek(start)
            return [file.readline().removesuffix(b"\n") for _ in range(count)]

    def lines(self) -> Iterator[bytes]:
        """The canonical JSON of every row."""
        with (self._directory / _ROWS).open("rb") as file:
            for line in file:
                yield line.removesuffix(b"\n")

    def all(self) -> Iterator[dict[str, Any]]:
        return map(read_row, self.lines())

    def file(self, name: str, most: int = -1) -> bytes:
        """A file beside the rows, or as much of it as may be read at most."""
        with (self._directory / name).open("rb") as file:
            return file.read(most)


def _place(places: BinaryIO, row: int) -> int:
    return int.from_bytes(os.pread(places.fileno(), _WIDTH, row * _WIDTH), "big")
