"""Reading a range of a log: each chunk is opened once, whatever happens to its name."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from hub.storage.datadir import DataDir
from hub.storage.reader import LogReader, Pruned
from support.hub import driven_hub
from veen.log import layout


class CountingDir(DataDir):
    """Notes which files are asked for."""

    asked: ClassVar[list[str]] = []

    def file(self, name: str) -> Path:
        self.asked.append(name)
        return super().file(name)


@pytest.fixture
def reader(hub_copy: Path) -> LogReader:
    CountingDir.asked.clear()
    return LogReader(CountingDir(hub_copy), driven_hub.LIMITS)


@pytest.fixture
def label(hub_copy: Path) -> bytes:
    """The label of record/a: two sealed chunks of eight, and an open one."""
    return bytes.fromhex(
        driven_hub.the(hub_copy, "log/*-00000000000000000017.open").name.split("-")[1]
    )


def test_a_range_over_three_chunks_opens_three_files(reader: LogReader, label: bytes) -> None:
    result = [entry.entry.receipt().stream_seq for entry in reader.entries(label, 3, 24)]
    assert result == list(range(3, 25))
    assert CountingDir.asked == [
        layout.chunk(layout.ChunkName(label, 1, 8)),
        layout.chunk(layout.ChunkName(label, 9, 16)),
        layout.open_chunk(layout.OpenChunkName(label, 17)),
    ]


def test_a_chunk_that_is_taken_away_while_it_is_read_is_read_to_its_end(
    reader: LogReader, label: bytes, hub_copy: Path
) -> None:
    entries = reader.entries(label, 1, 16)
    next(entries)
    for name in (layout.ChunkName(label, 1, 8), layout.ChunkName(label, 9, 16)):
        (hub_copy / layout.chunk(name)).unlink()
    assert [next(entries).seq for _ in range(7)] == list(range(2, 9))
    with pytest.raises(Pruned, match="stream_seq 9"):
        next(entries)


def test_a_chunk_that_is_sealed_while_it_is_read_is_read_to_its_end(
    reader: LogReader, label: bytes, hub_copy: Path
) -> None:
    entries = reader.entries(label, 17, 24)
    next(entries)
    name = hub_copy / layout.open_chunk(layout.OpenChunkName(label, 17))
    name.rename(name.with_suffix(".renamed"))
    assert [entry.seq for entry in entries] == list(range(18, 25))
