"""The Spark engine of the query service: submits jobs and takes over their files (Query API 8).

A query on Spark covers the log up to a recorder checkpoint that is chosen once and that the archive
already holds; the archive is pushed after a checkpoint is made, so it lags behind the index. Jobs
run through a port: as a child process of this host, or scheduled by Airflow. A time limit ends a
job that hangs or whose DAG is paused.

A job leaves ``rows.jsonl`` (canonical JSON, a row a line, in order), ``digest-parts.json``
(rows_hash, rows_chain, row_count, event_count, evidence_hash, searched) and
``witnesses.cborseq``. Its rows are hashed again here: an incomplete result is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, ClassVar, Final, Protocol

from recorder.archive.store import HubArchive, NoArchive
from recorder.index.reader import snapshot
from recorder.index.tables import IndexHome
from recorder.query.descriptor import Descriptor, read_row
from recorder.query.digest import ResultDigest, RowsHash, Searched, rows_hash
from recorder.service.execute import CHECKPOINT_FILE, WITNESS_FILE, NoQueryCheckpoint, RowsWriter
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.label import derive_label, routing_key, stream_id
from veen.objects.port import NotAllowed, StoreLocation, StoreRefused
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable
from veen.system.log_file import last_lines
from veen.system.spark_submit import SparkSubmit

_REMEDY = "run veen archive push, then submit the query again"
_POLL_SEC: Final = 0.25
_STOP_SEC: Final = 20.0
_LOG_TAIL_BYTES: Final = 600
SPARK: Final = "spark"


class QueryNotArchived(VeenError):
    """The archive has reached no checkpoint that covers the streams of a query."""

    error_code: ClassVar[str] = "NOT_ARCHIVED"


class ArchivedCheckpoints:
    """Chooses checkpoints. ``archive`` opens the archive, ``hub`` returns the current identity."""

    def __init__(
        self,
        index: IndexHome,
        archive: Callable[[], HubArchive],
        hub: Callable[[], HubIdentity],
    ) -> None:
        self._index = index
        self._archive = archive
        self._hub = hub

    def latest(self, descriptor: Descriptor) -> RecorderCheckpoint:
        """The latest checkpoint that index and archive have reached in every stream of the
        scope."""
        ends = self._ends(descriptor.scope)
        with snapshot(self._index) as held:
            held.verify_no_alarms()
            newest = held.latest(descriptor.scope)
            if newest is None:
                raise NoQueryCheckpoint
            _verify_archived(newest, ends)
            agreed = held.agreed(descriptor.scope)
            checkpoint = next((item for item in agreed if _reaches(ends, item)), None)
        if checkpoint is None:
            raise QueryNotArchived(f"the archive has reached no recorder checkpoint yet: {_REMEDY}")
        checkpoint.verify(self._hub())
        return checkpoint

    def _ends(self, streams: Sequence[str]) -> dict[str, int]:
        try:
            archive = self._archive()
            manifest = archive.latest()
        except NotAllowed:
            raise
        except (StoreRefused, NoArchive) as error:
            raise QueryNotArchived(f"{error}: {_REMEDY}") from error
        routing = routing_key(archive.keys.hub_id)
        refs = {
            stream: manifest.ref(derive_label(routing, stream_id(stream), 0)) for stream in streams
        }
        return {stream: ref.end_seq if ref else 0 for stream, ref in refs.items()}


def _verify_archived(newest: RecorderCheckpoint, ends: Mapping[str, int]) -> None:
    """A checkpoint from before the first event would be reached, but cover no event."""
    for stream, archived in ends.items():
        end = newest.end(stream)
        if not archived and end is not None and end.last_seq:
            raise QueryNotArchived(f"the archive holds nothing of {stream}: {_REMEDY}")


def _reaches(ends: Mapping[str, int], checkpoint: RecorderCheckpoint) -> bool:
    pairs = ((archived, checkpoint.end(stream)) for stream, archived in ends.items())
    return all(end is not None and end.last_seq <= archived for archived, end in pairs)


class JobFailed(VeenError):
    """A Spark job that failed, or was stopped."""


@dataclass(frozen=True, slots=True)
class SparkWork:
    """The directory of a job: its inputs, and its results in ``out``."""

    result_id: str
    directory: Path

    @property
    def descriptor(self) -> Path:
        return self.directory / "descriptor.json"

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint.cbor"

    @property
    def out(self) -> Path:
        return self.directory / "out"

    @property
    def log(self) -> Path:
        return self.directory / "spark.log"


class Scheduler(Protocol):
    """Port that runs jobs."""

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        """Run the job of a query and wait for it; JobFailed if it fails.

        The same work again continues what an earlier run has begun, or starts a new run.
        ``is_over`` says that the service ends.
        """


@dataclass(frozen=True, slots=True)
class JobTerms:
    """The parameters of all jobs: the job's file, Spark, the archive and the reader."""

    job: Path
    spark: SparkSubmit
    store: StoreLocation
    hub_id: bytes
    client: Path
    passphrase_file: Path | None


class LocalSubmitter:
    """Runs the job as a child process, with its log beside the results.

    Each run writes to its own directory, which is renamed to ``out`` once it is complete: the job
    of a runner that was killed may still be writing.
    """

    def __init__(self, terms: JobTerms, sleep: Callable[[float], None]) -> None:
        self._terms = terms
        self._sleep = sleep

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        out = work.directory / f"out-{os.getpid()}"
        shutil.rmtree(out, ignore_errors=True)
        with work.log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own program with our own arguments
                self._terms.spark.command(self._terms.job, _arguments(self._terms, work, out)),
                env=self._terms.spark.environment(os.environ),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                self._await(process, is_over)
            finally:
                _end(process)
        if process.returncode != 0:
            raise JobFailed(f"Spark ended with {process.returncode}: {_log_tail(work.log)}")
        shutil.rmtree(work.out, ignore_errors=True)
        durable.rename(out, work.out)

    def _await(self, process: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> None:
        while process.poll() is None:
            if is_over():
                raise JobFailed("the service ended; the query is run again when it starts")
            self._sleep(_POLL_SEC)


def _arguments(terms: JobTerms, work: SparkWork, out: Path) -> Iterator[str]:
    yield from ("--descriptor", str(work.descriptor), "--result-id", work.result_id)
    yield from ("--checkpoint", str(work.checkpoint))
    yield from terms.store.arguments()
    yield from ("--hub-id", terms.hub_id.hex(), "--client", str(terms.client))
    if terms.passphrase_file is not None:
        yield from ("--passphrase-file", str(terms.passphrase_file))
    yield from ("--out", str(out))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process group, since the Python of a job would outlive its Java."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SEC)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _log_tail(log: Path) -> str:
    return " | ".join(last_lines(log, 4, _LOG_TAIL_BYTES)).strip()


class SparkEngine:
    """Runs queries on Spark; each has a directory in ``work``, and ``results`` takes the rows."""

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
        """The checkpoint of a query that was begun before."""
        file = SparkWork(result_id, self._work / result_id).checkpoint
        return RecorderCheckpoint.decode(file.read_bytes()) if file.exists() else None

    def run(
        self, descriptor: Descriptor, result_id: str, checkpoint: RecorderCheckpoint
    ) -> ResultDigest:
        work = SparkWork(result_id, self._work / result_id)
        agreed = _prepare(work, descriptor, checkpoint)
        self._scheduler.run(work, self._over.is_set)
        return self._take_over(work, descriptor, agreed)

    def _take_over(
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
            searched=[Searched(**part) for part in parts["searched"]],
        )


def _prepare(
    work: SparkWork, descriptor: Descriptor, checkpoint: RecorderCheckpoint
) -> RecorderCheckpoint:
    """Write the inputs; return the checkpoint of the first run, which may still be running."""
    durable.make_directory(work.directory)
    durable.write_once(work.descriptor, descriptor.encode())
    if not work.checkpoint.exists():
        durable.write(work.checkpoint, checkpoint.encode())
    return RecorderCheckpoint.decode(work.checkpoint.read_bytes())


def _parts(work: SparkWork) -> dict[str, Any]:
    file = work.out / "digest-parts.json"
    try:
        document: dict[str, Any] = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError) as error:
        raise JobFailed(f"the job left no {file.name}: {error}") from error
    return document


def _rows(work: SparkWork) -> Iterator[dict[str, Any]]:
    with (work.out / "rows.jsonl").open("rb") as file:
        for line in file:
            yield read_row(line)


def _verify(hashed: RowsHash, parts: dict[str, Any]) -> None:
    claimed = parts["rows_hash"], parts["row_count"], parts["rows_chain"]
    if hashed != claimed:
        raise Untrusted(f"the rows of Spark: expected hash {claimed}, got {hashed}")


class SparkQueries:
    """Spark queries as the runner sees them, with the choice of the checkpoint."""

    def __init__(self, engine: SparkEngine, archived: ArchivedCheckpoints) -> None:
        self._engine = engine
        self._archived = archived

    def run(self, descriptor: Descriptor, result_id: str) -> ResultDigest:
        """Run a query; after a restart the checkpoint is that of the run before."""
        checkpoint = self._engine.begun(result_id) or self._archived.latest(descriptor)
        return self._engine.run(descriptor, result_id, checkpoint)

    def stop(self) -> None:
        self._engine.stop()


class TimeLimit:
    """A scheduler with a time limit."""

    def __init__(
        self, scheduler: Scheduler, limit_sec: float, monotonic: Callable[[], float]
    ) -> None:
        self._scheduler = scheduler
        self._limit_sec = limit_sec
        self._monotonic = monotonic

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        deadline = self._monotonic() + self._limit_sec

        def is_late() -> bool:
            return self._monotonic() >= deadline

        try:
            self._scheduler.run(work, lambda: is_over() or is_late())
        except JobFailed as error:
            if is_over() or not is_late():
                raise
            raise JobFailed(
                f"Spark did not end within {self._limit_sec:g} seconds (spark_timeout_sec): see "
                f"{work.log}, or in Airflow whether veen_query is paused; then submit again"
            ) from error
