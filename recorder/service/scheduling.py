"""Where a query on Spark is run: the port, and the job as a child process of this host."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from veen import durable
from veen.errors import VeenError
from veen.log_file import last_lines
from veen.objects.settings import FileSettings, StoreSettings

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
    found = ["--store", store.url, "--region", store.region]
    if store.endpoint is not None:
        found += ["--endpoint", store.endpoint]
    return (*found, "--addressing", store.addressing.value)


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
    found = dict(os.environ)
    found.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        found.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return found


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
