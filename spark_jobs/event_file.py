"""The events of one chunk as Parquet, a file a day: the same entries give the same bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from spark_jobs.chunk_window import ArchivedChunk, windows
from spark_jobs.event_manifest import EventChunk, EventFile
from spark_jobs.event_rows import ARROW, DAY_SEC, Readership, Stream, batch, by_day
from veen.layout import chunk as chunk_file
from veen.objects.body import digest_of
from veen.objects.port import ObjectStore

# All that could make bytes differ is fixed; the version of pyarrow stands in them too.
_WRITER: Final[dict[str, Any]] = {
    "version": "2.6",
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": False,
    "data_page_version": "1.0",
    "store_schema": False,
    "write_page_index": False,
}
_OPENED: Final = ARROW.get_field_index("opened")


@dataclass(frozen=True, slots=True)
class EventWriter:
    """Writes chunks below ``prefix``; a name holds the digest of its file."""

    objects: ObjectStore
    prefix: str
    readership: Readership

    def write(self, chunk: ArchivedChunk, stream: Stream) -> EventChunk:
        """Put the files of one chunk; they count once a manifest names them."""
        with tempfile.TemporaryDirectory(prefix="veen-events-") as scratch:
            spool = _Spool(Path(scratch))
            with ExitStack() as stack:
                for entries in windows(self.objects, chunk, self.readership.limits):
                    spool.take(by_day(self.readership.rows(entries, stream, chunk)), stack)
            files = tuple(self._put(path, day, spool, chunk, stream) for day, path in spool.paths())
        name = chunk.name
        return EventChunk(
            start_seq=name.start_seq,
            end_seq=name.end_seq,
            rows=sum(one.rows for one in files),
            opened=spool.opened,
            files=files,
        )

    def _put(
        self, path: Path, day: int, spool: _Spool, chunk: ArchivedChunk, stream: Stream
    ) -> EventFile:
        with path.open("rb") as file:
            sha256 = digest_of(file)
        folder = f"stream={_stream(stream, chunk)}/day={_date(day)}"
        key = f"{self.prefix}/{folder}/{_name(chunk, sha256)}"
        self.objects.put_file(key, path)
        return EventFile(
            key=key,
            day=_date(day),
            rows=spool.rows[day],
            size=path.stat().st_size,
            sha256=sha256,
        )


class _Spool:
    """Files being written, one a day, a window of entries at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[int, pq.ParquetWriter] = {}
        self.rows: dict[int, int] = {}
        self.opened = 0

    def take(self, days: dict[int, list[tuple[Any, ...]]], stack: ExitStack) -> None:
        for day, rows in days.items():
            if day not in self._writers:
                writer = pq.ParquetWriter(self._path(day), ARROW, **_WRITER)
                self._writers[day] = stack.enter_context(writer)
            self._writers[day].write_batch(batch(rows))
            self.rows[day] = self.rows.get(day, 0) + len(rows)
            self.opened += sum(row[_OPENED] for row in rows)

    def paths(self) -> Iterator[tuple[int, Path]]:
        return ((day, self._path(day)) for day in sorted(self.rows))

    def _path(self, day: int) -> Path:
        return self._folder / f"{day}.parquet"


def _stream(stream: Stream, chunk: ArchivedChunk) -> str:
    return stream.stream_id.hex() if stream.stream_id else f"label-{chunk.name.label.hex()}"


def _name(chunk: ArchivedChunk, sha256: bytes) -> str:
    stem = chunk_file(chunk.name).removeprefix("log/").removesuffix(".log")
    return f"{stem}-{sha256[:8].hex()}.parquet"


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_SEC, UTC).strftime("%Y-%m-%d")
