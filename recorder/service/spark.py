"""Up to which recorder checkpoint a query on Spark can speak: as far as the archive goes.

The archive is pushed after a checkpoint was made, so it is behind the index for a while each time.

Where a query on Spark is run: the port, and the job as a child process of this host.

The spark engine as the service sees it: a job is given a query and leaves files (Query API 8).

The job leaves ``rows.jsonl`` (canonical JSON, a row a line, in order), ``digest-parts.json``
(rows_hash, rows_chain, row_count, event_count, evidence_hash, searched) and
``witnesses.cborseq``. Its rows are hashed again here: a result that is not whole is none.

Queries on Spark as the runner sees them: each speaks up to a checkpoint that is chosen once.

A bound on how long a job on Spark may take: a paused DAG or a hung job would never end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final, Protocol

from recorder.archive.store import HubArchive, NoArchive
from recorder.index.reader import snapshot
from recorder.index.tables import IndexHome
from recorder.query.descriptor import Descriptor, read_row
from recorder.query.digest import ResultDigest, RowsHash, Searched, rows_hash
from recorder.service.execute import CHECKPOINT_FILE, WITNESS_FILE, NoCheckpoint, RowsWriter
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.label import derive_label, routing_key, stream_id
from veen.objects.port import FileSettings, NotAllowed, StoreRefused, StoreSettings
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable
from veen.system.log_file import last_lines

_REMEDY = "run veen archive push, then submit the query again"


class NotArchived(VeenError):
    """The archive has reached no checkpoint that speaks of the streams of a query."""


class ArchivedCheckpoints:
    """``archive`` opens the archive, ``hub`` is the identity as it is known by now."""

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
        """The latest one that index and archive have reached in every stream of the scope."""
        ends = self._ends(descriptor.scope)
        with snapshot(self._index) as held:
            held.refuse_alarms()
            newest = held.latest(descriptor.scope)
            if newest is None:
                raise NoCheckpoint
            _refuse_missing(newest, ends)
            reached = (item for item in held.agreed(descriptor.scope) if _reaches(ends, item))
            result = next(reached, None)
        if result is None:
            raise NotArchived(f"the archive has reached no recorder checkpoint yet: {_REMEDY}")
        result.verify(self._hub())
        return result

    def _ends(self, streams: Sequence[str]) -> dict[str, int]:
        try:
            archive = self._archive()
            manifest = archive.latest()
        except NotAllowed:
            raise
        except (StoreRefused, NoArchive) as error:
            raise NotArchived(f"{error}: {_REMEDY}") from error
        routing = routing_key(archive.keys.hub_id)
        refs = {
            stream: manifest.ref(derive_label(routing, stream_id(stream), 0)) for stream in streams
        }
        return {item: ref.end_seq if ref else 0 for item, ref in refs.items()}


def _refuse_missing(newest: RecorderCheckpoint, ends: Mapping[str, int]) -> None:
    """A checkpoint from before the first event would be reached, and would tell nothing."""
    for stream, archived in ends.items():
        end = newest.end(stream)
        if not archived and end is not None and end.last_seq:
            raise NotArchived(f"the archive holds nothing of {stream}: {_REMEDY}")


def _reaches(ends: Mapping[str, int], checkpoint: RecorderCheckpoint) -> bool:
    result = ((archived, checkpoint.end(stream)) for stream, archived in ends.items())
    return all(end is not None and end.last_seq <= archived for archived, end in result)


_LOOK_SEC: Final = 0.25
_STOP_SEC: Final = 20.0
_TOLD_BYTES: Final = 600


class JobFailed(VeenError):
    """A Spark job that did not end well, or was told to end."""


@dataclass(frozen=True, slots=True)
class SparkWork:
    """``directory`` holds what the job is given, and takes what it finds in ``out``."""

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
    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        """Have the job of one query run, and wait until it has ended well; JobFailed if not.

        The same work again takes up what an earlier run has begun, or begins anew. ``is_over``
        says that the service ends.
        """


@dataclass(frozen=True, slots=True)
class JobTerms:
    """What the job is told beside its work: its file, the master, the archive and who reads."""

    job: Path
    master: str
    store: Sequence[str]
    hub_id: bytes
    client: Path
    passphrase_file: Path | None


def store_arguments(store: StoreSettings) -> tuple[str, ...]:
    """How a job is told of the archive."""
    if isinstance(store, FileSettings):
        return "--store", store.root.absolute().as_uri()
    result = ["--store", store.url, "--region", store.region]
    if store.endpoint is not None:
        result += ["--endpoint", store.endpoint]
    return (*result, "--addressing", store.addressing.value)


class LocalSubmitter:
    """Runs the job as a child process, whose words are kept beside what it finds.

    Each run has a directory of its own, which takes the place of ``out`` once it is whole: the job
    of a runner that was killed may still be writing.
    """

    def __init__(self, terms: JobTerms, sleep: Callable[[float], None]) -> None:
        self._terms = terms
        self._sleep = sleep

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        out = work.directory / f"out-{os.getpid()}"
        shutil.rmtree(out, ignore_errors=True)
        with work.log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own program with our own words
                list(_command(self._terms, work, out)),
                env=_environment(self._terms.master),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                self._await(process, is_over)
            finally:
                _end(process)
        if process.returncode != 0:
            raise JobFailed(f"Spark ended with {process.returncode}: {_last_words(work.log)}")
        shutil.rmtree(work.out, ignore_errors=True)
        durable.rename(out, work.out)

    def _await(self, process: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> None:
        while process.poll() is None:
            if is_over():
                raise JobFailed("the service ended; the query is run again when it starts")
            self._sleep(_LOOK_SEC)


def _command(terms: JobTerms, work: SparkWork, out: Path) -> Iterator[str]:
    program = Path(sys.executable).with_name("spark-submit")
    yield str(program) if program.exists() else "spark-submit"
    yield from ("--master", terms.master)
    for setting in ("spark.ui.enabled=false", "spark.log.level=ERROR"):
        yield from ("--conf", setting)
    yield str(terms.job)
    yield from ("--descriptor", str(work.descriptor), "--result-id", work.result_id)
    yield from ("--checkpoint", str(work.checkpoint), *terms.store)
    yield from ("--hub-id", terms.hub_id.hex(), "--client", str(terms.client))
    if terms.passphrase_file is not None:
        yield from ("--passphrase-file", str(terms.passphrase_file))
    yield from ("--out", str(out))


def _environment(master: str) -> dict[str, str]:
    environ = dict(os.environ)
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environ


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started: the Python of a job would outlive its Java."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SEC)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(log: Path) -> str:
    return " | ".join(last_lines(log, 4, _TOLD_BYTES)).strip()


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
            searched=[Searched(**part) for part in parts["searched"]],
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
        document: dict[str, Any] = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError) as error:
        raise JobFailed(f"the job left no {file.name}: {error}") from error
    return document


def _rows(work: SparkWork) -> Iterator[dict[str, Any]]:
    with (work.out / "rows.jsonl").open("rb") as file:
        for line in file:
            yield read_row(line)


def _verify(hashed: RowsHash, parts: dict[str, Any]) -> None:
    said = parts["rows_hash"], parts["row_count"], parts["rows_chain"]
    if hashed != said:
        raise Untrusted(f"the rows that Spark left are not those it hashed: {hashed}, {said}")


class SparkQueries:
    def __init__(self, engine: SparkEngine, archived: ArchivedCheckpoints) -> None:
        self._engine = engine
        self._archived = archived

    def run(self, descriptor: Descriptor, result_id: str) -> ResultDigest:
        """After a restart the checkpoint is that of the run before, whose job may be going on."""
        checkpoint = self._engine.begun(result_id) or self._archived.latest(descriptor)
        return self._engine.run(descriptor, result_id, checkpoint)

    def stop(self) -> None:
        self._engine.stop()


class TimeLimit:
    """The scheduler that it is given, which is told to give up when the time is over."""

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
