"""The rows of a result on disk: canonical JSON, one row a line, with the place of each line.

A page is read by the places alone, so it costs what the page holds, whatever the result holds,
and no page can change the order that rows_hash speaks of (Query API 7.4).

A query run to its rows on disk and their digest; recording it is another's task.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

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


INLINE: Final = "inline"
CHECKPOINT_FILE: Final = "checkpoint.cbor"
WITNESS_FILE: Final = "witnesses.cborseq"
_LIMITS: Final = JsonLimits(max_bytes=4 << 20)
"""A normalised descriptor is a little longer than what was submitted."""


class NoCheckpoint(VeenError):
    """There is no recorder checkpoint up to which a query could speak."""

    def __init__(self) -> None:
        super().__init__(
            "no recorder checkpoint speaks of these streams yet, or the index has not reached "
            "it; make one with veen recorder checkpoint create, and submit again"
        )


class InlineEngine:
    """Answers from the index; ``hub`` is the identity as it is known by now."""

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
        """The latest one that the index has reached in every stream of the scope, verified."""
        with snapshot(self._index) as held:
            held.refuse_alarms()
            result = held.latest(descriptor.scope)
        if result is None:
            raise NoCheckpoint
        result.verify(self._hub())
        return result

    def run(
        self, descriptor: Descriptor, result_id: str, checkpoint: RecorderCheckpoint
    ) -> ResultDigest:
        """The digest of a result whose rows are on disk on return; or an error and no result."""
        hub = self._hub()
        result = answer(self._index, descriptor, checkpoint, hub, self._limits, self._beside)
        lines = (verified(sampled.entry, checkpoint) for sampled in result.outcome.sampled)
        hashed_evidence = evidence_hash(descriptor, result_id, lines)
        writer = RowsWriter(self._results / result_id)
        try:
            hashed = rows_hash(writer.through(result.outcome.rows))
            keep_evidence(writer, checkpoint, result.witnesses)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        return ResultDigest.of(
            descriptor,
            result_id=result_id,
            rows=hashed,
            event_count=result.outcome.event_count,
            evidence_hash=hashed_evidence,
            executed_at_ms=self._clock_ms(),
            checkpoint=checkpoint,
            searched=result.searched,
        )


def keep_evidence(
    writer: RowsWriter, checkpoint: RecorderCheckpoint, witnesses: Iterable[Witness]
) -> None:
    """What a proof package is made of later; the index may have moved on by then."""
    writer.add_file(CHECKPOINT_FILE, checkpoint.encode())
    writer.add_file(WITNESS_FILE, b"".join(witness.encode() for witness in witnesses))


def descriptor_of(query: Query) -> Descriptor:
    """The descriptor of a query as it was recorded."""
    return read_descriptor(parse_json(query.descriptor, _LIMITS))


def read_witnesses(raw: bytes) -> list[Witness]:
    return [Witness.decode(item) for item in cbor.decode_sequence(raw)]
