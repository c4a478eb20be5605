"""Running a query to its rows on disk and their digest.

Rows are canonical JSON, a row a line, with an index of line offsets. A page is read by the offsets
alone, so its cost depends on the page and not on the result, and no page can change the order that
rows_hash covers (Query API 7.4).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final

from recorder.index.engine import EngineLimits, answer
from recorder.index.reader import snapshot
from recorder.index.tables import IndexHome
from recorder.query.descriptor import Descriptor, JsonLimits, parse_json, read_descriptor, read_row
from recorder.query.digest import ResultDigest, rows_hash
from recorder.query.evidence import Witness, evidence_hash, verified
from recorder.service.database import Query
from veen.errors import VeenError
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable
from veen.system.process_pool import IN_PROCESS, WorkerPool
from veen.wire import canonical_json, cbor

_ROWS: Final = "rows.jsonl"
_OFFSETS: Final = "offsets"
_OFFSET_BYTES: Final = 8
INLINE: Final = "inline"
CHECKPOINT_FILE: Final = "checkpoint.cbor"
WITNESS_FILE: Final = "witnesses.cborseq"
_LIMITS: Final = JsonLimits(max_bytes=4 << 20)
"""A normalised descriptor is slightly longer than the submitted one."""


class RowsWriter:
    """Writes a result to a temporary directory, and renames it once it is complete and synced."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._temporary = directory.with_name(f".{directory.name}.new")
        shutil.rmtree(self._temporary, ignore_errors=True)
        durable.make_directory(self._temporary)
        self._rows = (self._temporary / _ROWS).open("wb")
        self._offsets = (self._temporary / _OFFSETS).open("wb")

    def through(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the same rows after writing each."""
        for row in rows:
            self._offsets.write(self._rows.tell().to_bytes(_OFFSET_BYTES, "big"))
            self._rows.write(canonical_json.encode(row) + b"\n")
            yield row

    def add_file(self, name: str, content: bytes) -> None:
        durable.write(self._temporary / name, content)

    def add_copy(self, name: str, source: Path) -> None:
        """Like ``add_file``, for a file that need not fit into memory."""
        shutil.copyfile(source, self._temporary / name)
        with (self._temporary / name).open("rb") as file:
            durable.sync(file.fileno())

    def finish(self) -> None:
        for file in (self._rows, self._offsets):
            file.flush()
            durable.sync(file.fileno())
            file.close()
        durable.sync_directory(self._temporary)
        shutil.rmtree(self._directory, ignore_errors=True)
        durable.rename(self._temporary, self._directory)

    def abandon(self) -> None:
        for file in (self._rows, self._offsets):
            file.close()
        shutil.rmtree(self._temporary, ignore_errors=True)


class RowsFile:
    """A finished result on disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def count(self) -> int:
        return (self._directory / _OFFSETS).stat().st_size // _OFFSET_BYTES

    def page(self, offset: int, limit: int) -> list[bytes]:
        """The canonical JSON of the rows from ``offset`` on."""
        count = min(limit, max(0, self.count() - offset))
        if count == 0:
            return []
        with (self._directory / _OFFSETS).open("rb") as places:
            start = _offset_of(places, offset)
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
        """A file beside the rows, or its first ``most`` bytes."""
        with (self._directory / name).open("rb") as file:
            return file.read(most)


def _offset_of(places: BinaryIO, row: int) -> int:
    return int.from_bytes(os.pread(places.fileno(), _OFFSET_BYTES, row * _OFFSET_BYTES), "big")


class NoQueryCheckpoint(VeenError):
    """There is no recorder checkpoint that covers the streams of a query."""

    error_code: ClassVar[str] = "NO_CHECKPOINT"

    def __init__(self) -> None:
        super().__init__(
            "no recorder checkpoint speaks of these streams yet, or the index has not reached "
            "it; make one with veen recorder checkpoint create, and submit again"
        )


class InlineEngine:
    """Answers from the index; ``hub`` returns the current identity of the hub."""

    def __init__(
        self,
        index: IndexHome,
        results: Path,
        limits: EngineLimits,
        *,
        hub: Callable[[], HubIdentity],
        clock_ms: Callable[[], int],
        beside: WorkerPool = IN_PROCESS,
    ) -> None:
        self._index = index
        self._beside = beside
        self._results = results
        self._limits = limits
        self._hub = hub
        self._clock_ms = clock_ms

    def checkpoint(self, descriptor: Descriptor) -> RecorderCheckpoint:
        """The latest checkpoint that the index has reached in every stream of the scope,
        verified."""
        with snapshot(self._index) as held:
            held.verify_no_alarms()
            checkpoint = held.latest(descriptor.scope)
        if checkpoint is None:
            raise NoQueryCheckpoint
        checkpoint.verify(self._hub())
        return checkpoint

    def run(
        self, descriptor: Descriptor, result_id: str, checkpoint: RecorderCheckpoint
    ) -> ResultDigest:
        """Run a query; its rows are durable on return, and on an error there is no result."""
        hub = self._hub()
        query_answer = answer(self._index, descriptor, checkpoint, hub, self._limits, self._beside)
        lines = (verified(sampled.entry, checkpoint) for sampled in query_answer.outcome.sampled)
        hashed_evidence = evidence_hash(descriptor, result_id, lines)
        writer = RowsWriter(self._results / result_id)
        try:
            hashed = rows_hash(writer.through(query_answer.outcome.rows))
            store_evidence(writer, checkpoint, query_answer.witnesses)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        return ResultDigest.of(
            descriptor,
            result_id=result_id,
            rows=hashed,
            event_count=query_answer.outcome.event_count,
            evidence_hash=hashed_evidence,
            executed_at_ms=self._clock_ms(),
            checkpoint=checkpoint,
            searched=query_answer.searched,
        )


def store_evidence(
    writer: RowsWriter, checkpoint: RecorderCheckpoint, witnesses: Iterable[Witness]
) -> None:
    """Store the inputs of a proof package, since the index may have advanced by then."""
    writer.add_file(CHECKPOINT_FILE, checkpoint.encode())
    writer.add_file(WITNESS_FILE, b"".join(witness.encode() for witness in witnesses))


def descriptor_of(query: Query) -> Descriptor:
    """The descriptor of a query as it was recorded."""
    return read_descriptor(parse_json(query.descriptor, _LIMITS))


def read_witnesses(raw: bytes) -> list[Witness]:
    return [Witness.decode(encoded) for encoded in cbor.decode_sequence(raw)]
