"""Replay output as one file of records: appended to, truncated where it is torn, and resumed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from recorder.replay.formats import CborSequence, JsonLines
from recorder.replay.plan import ReplayPlan
from recorder.replay.records import OutputCursor, Proof, Record, RecordFormat, WrittenItem
from veen.errors import Malformed, Untrusted, VeenError
from veen.system import durable

FORMS: Final[tuple[RecordFormat, ...]] = (JsonLines(), CborSequence())
MAX_RECORD_BYTES: Final = 64 << 20
BLOCK_BYTES: Final = 1 << 20
PART_ROWS: Final = 100_000
"""Of a Parquet file."""
GROUP_ROWS: Final = 5_000
"""Of a row group within it."""


class OutputExists(VeenError):
    """An output exists and is not to be resumed."""


class Sink(Protocol):
    """Takes the records of a replay in order; they are durable after ``close``."""

    def put(self, record: Record) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Stop, leaving an output that can be resumed; raises nothing more."""


class OutputRecord(NamedTuple):
    """A record of an output, its offset and its bytes."""

    start: int
    raw: bytes
    record: ReplayPlan | Proof | WrittenItem


def form_named(name: str) -> RecordFormat:
    return next(form for form in FORMS if form.name == name)


def form_of(path: Path) -> RecordFormat:
    """The format of an output, by its first byte."""
    with path.open("rb") as file:
        return form_named("jsonl" if file.read(1) == b"{" else "cbor")


def read_records(path: Path, form: RecordFormat) -> Iterator[OutputRecord]:
    """Yield every complete record of a file, in bounded memory; a torn last record is left out."""
    buffer, begin = b"", 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            buffer += block
            at = 0
            while at < len(buffer) and (end := form.end(buffer, at)) is not None:
                raw = buffer[at:end]
                yield OutputRecord(begin + at, raw, _decoded(path, begin + at, form, raw))
                at = end
            buffer, begin = buffer[at:], begin + at
            if len(buffer) > MAX_RECORD_BYTES:
                raise Malformed(
                    f"{path}, byte {begin}: expected a record of at most {MAX_RECORD_BYTES} bytes"
                )


def cursor_of(path: Path, form: RecordFormat) -> tuple[OutputCursor | None, int]:
    """Return how far an output has come, and where its last complete record ends."""
    cursor: OutputCursor | None = None
    end = 0
    for start, raw, record in read_records(path, form):
        end = start + len(raw)
        if isinstance(record, ReplayPlan) != (cursor is None):
            raise Malformed(f"{path}, byte {start}: expected one plan, as the first record")
        if isinstance(record, ReplayPlan):
            cursor = OutputCursor(record)
        elif cursor is not None:
            _advance(path, start, cursor, record)
    return cursor, end


class FileSink:
    """Writes to a file; records are buffered to reduce the number of syncs."""

    def __init__(
        self,
        path: Path,
        form: RecordFormat,
        plan: ReplayPlan,
        size: int,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        flags = os.O_WRONLY | (0 if size else os.O_CREAT)
        self._fd = os.open(path, flags, durable.FILE_MODE)
        durable.cut(self._fd, size)
        durable.sync_directory(path.absolute().parent)
        self._form = form
        self._plan = plan
        self._size = size
        self._block_bytes = block_bytes
        self._waiting = bytearray()

    def put(self, record: Record) -> None:
        self._waiting += self._form.encode(record, self._plan)
        if len(self._waiting) >= self._block_bytes:
            self._flush()

    def close(self) -> None:
        self._flush()
        os.close(self._fd)

    def abandon(self) -> None:
        """Write the buffered records, if there is space."""
        with suppress(VeenError):
            self._flush()
        with suppress(OSError):
            os.close(self._fd)

    def _flush(self) -> None:
        if self._waiting:
            durable.append(self._fd, self._size, bytes(self._waiting))
            self._size += len(self._waiting)
            self._waiting.clear()


class PipeSink:
    """Writes to a pipe."""

    def __init__(self, pipe: BinaryIO, form: RecordFormat, plan: ReplayPlan) -> None:
        self._pipe = pipe
        self._form = form
        self._plan = plan

    def put(self, record: Record) -> None:
        self._pipe.write(self._form.encode(record, self._plan))

    def close(self) -> None:
        self._pipe.flush()

    def abandon(self) -> None:
        """Nothing to do: the reader has received every record."""


def verify_replay_start(path: Path, form: RecordFormat) -> None:
    """Verify that a file without a complete record can be the start of a replay."""
    starts = {"jsonl": b'{"kind":"replay"', "cbor": b"\x82\x00"}
    with path.open("rb") as file:
        head = file.read(len(starts[form.name]))
    if not starts[form.name].startswith(head[: len(starts[form.name])]):
        raise OutputExists(f"{path}: expected a replay in the form {form.name}; it was not changed")


def _advance(path: Path, start: int, cursor: OutputCursor, record: Proof | WrittenItem) -> None:
    try:
        if isinstance(record, Proof):
            cursor.proof(record)
        else:
            cursor.item(record.stream, record.receipt, proven=record.proven)
    except Untrusted as error:
        error.add_note(f"in {path}, byte {start}")
        raise


def _decoded(
    path: Path, start: int, form: RecordFormat, raw: bytes
) -> ReplayPlan | Proof | WrittenItem:
    try:
        return form.decode(raw)
    except Malformed as error:
        raise Malformed(f"{path}, byte {start}: {error}") from error
