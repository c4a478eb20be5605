"""Reads one archived chunk as a task of ``veen_log`` does; prints rows and the most memory."""

from __future__ import annotations

import sys
from pathlib import Path

from spark_jobs.chunk_window import ArchivedChunk
from spark_jobs.log_source import ChunkPartition, SparkLogReader
from veen.log.layout import ChunkName
from veen.objects.port import FileSettings
from veen.objects.store import StoreRef


def most_memory() -> int:
    """In bytes. What getrusage tells is not less than what the parent once held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (result,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(result.split()[1]) * 1_024


def main(store: Path, hub_id: bytes, label: bytes, entries: int, size: int, window: int) -> None:
    reader = SparkLogReader(StoreRef(FileSettings(store)), hub_id, window)
    chunk = ArchivedChunk(hub_id, ChunkName(label, 1, entries), size)
    rows = sum(part.num_rows for part in reader.read(ChunkPartition(chunk)))
    print(rows, most_memory())


if __name__ == "__main__":
    hub_id, label = map(bytes.fromhex, sys.argv[2:4])
    entries, size, window = map(int, sys.argv[4:7])
    main(Path(sys.argv[1]), hub_id, label, entries, size, window)
