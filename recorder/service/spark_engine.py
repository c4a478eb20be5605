"""The spark engine as the service sees it: a job is given a query and leaves files (Query API 8).

The job leaves ``rows.jsonl`` (canonical JSON, a row a line, in order), ``digest-parts.json``
(rows_hash, rows_chain, row_count, event_count, evidence_hash, searched) and
``witnesses.cborseq``. Its rows are hashed again here: a result that is not whole is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, Final

from recorder.query.descriptor import Descriptor
from recorder.query.digest import ResultDigest, RowsHash, Searched, rows_hash
from recorder.query.json_text import read_row
from recorder.service.engine import CHECKPOINT_FILE, WITNESS_FILE
from recorder.service.rows_file import RowsWriter
from recorder.service.scheduling import JobFailed, Scheduler, SparkWork
from veen import durable
from veen.errors import Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint

SPARK: Final = "spark"


class SparkEngine:
    """``work`` is where each query on Spark has a directory; ``results`` takes the rows."""

    def __init__(
        self, scheduler: Scheduler, work: Path, results: Path, clock_ms: Callable[[], int]
    ) -> None:
        self._scheduler = scheduler
        self._work = work
        self._results = results
        self._clock_ms = clock_ms
        self._over = Event()

    def stop(self) -> None:
        self._over.set()

    def begun(self, result_id: str) -> RecorderCheckpoint | None:
        """The checkpoint that a query speaks up to which was begun before."""
        file = SparkWork(result_id, self._work / result_id).checkpoint
        return RecorderCheckpoint.decode(file.read_bytes()) if file.exists() else None

    def run(
        self, descriptor: Descriptor, result_id: str, checkpoint: RecorderCheckpoint
    ) -> ResultDigest:
        work = SparkWork(result_id, self._work / result_id)
        agreed = _prepare(work, descriptor, checkpoint)
        self._scheduler.run(work, self._over.is_set)
        return self._taken(work, descriptor, agreed)

    def _taken(
        self, work: SparkWork, descriptor: Descriptor, checkpoint: RecorderCheckpoint
    ) -> ResultDigest:
        parts = _parts(work)
        writer = RowsWriter(self._results / work.result_id)
        try:
            hashed = rows_hash(writer.through(_rows(work)))
            _verify(hashed, parts)
            writer.add_file(CHECKPOINT_FILE, checkpoint.encode())
            writer.add_copy(WITNESS_FILE, work.out / WITNESS_FILE)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        return ResultDigest.of(
            descriptor,
            result_id=work.result_id,
            rows=hashed,
            event_count=parts["event_count"],
            evidence_hash=parts["evidence_hash"],
            executed_at_ms=self._clock_ms(),
            checkpoint=checkpoint,
            searched=[Searched(**one) for one in parts["searched"]],
        )


def _prepare(
    work: SparkWork, descriptor: Descriptor, checkpoint: RecorderCheckpoint
) -> RecorderCheckpoint:
    """The checkpoint that the job speaks up to: that of the first run, which may be going on."""
    durable.make_directory(work.directory)
    durable.write_once(work.descriptor, descriptor.encode())
    if not work.checkpoint.exists():
        durable.write(work.checkpoint, checkpoint.encode())
    return RecorderCheckpoint.decode(work.checkpoint.read_bytes())


def _parts(work: SparkWork) -> dict[str, Any]:
    file = work.out / "digest-parts.json"
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError) as error:
        raise JobFailed(f"the job left no {file.name}: {error}") from error
    return found


def _rows(work: SparkWork) -> Iterator[dict[str, Any]]:
    with (work.out / "rows.jsonl").open("rb") as file:
        for line in file:
            yield read_row(line)


def _verify(hashed: RowsHash, parts: dict[str, Any]) -> None:
    said = parts["rows_hash"], parts["row_count"], parts["rows_chain"]
    if hashed != said:
        raise Untrusted(f"the rows that Spark left are not those it hashed: {hashed}, {said}")
