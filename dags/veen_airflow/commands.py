"""A ``veen`` command as a child process of a task: the same words that an operator can type.

What it says on its error output goes into the task's log, line by line; what it prints is one JSON
document. The child and all that it starts end with the task, however that ends.

The words of every command that these DAGs run, from what the zone's file says.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from veen_airflow.artefacts import DagRefusal
from zone.config import StorageSettings, ZoneConfig

RUNBOOK: Final = "docs/runbook.md"
PATIENCE_SEC: Final = 300.0
"""How long a command waits for another one that uses the same identity or state."""

OK, USAGE, NETWORK, INTEGRITY = 0, 1, 2, 3
_HELD: Final = ("LOCKED", "BUSY")
_LOOK_SEC: Final = 1.0
_STOP_SEC: Final = 20.0
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)
_LOG = logging.getLogger(__name__)


class CommandFailed(Exception):
    """A command that ended badly: which, how, why, and where the runbook tells what to do.

    ``is_final`` says that to run it again changes nothing: it was called wrongly, or something
    that was signed does not hold, which ``is_evidence`` says.
    """

    def __init__(self, words: Sequence[str], answer: CommandAnswer, section: str) -> None:
        why = answer.document.get("detail") or answer.last_words or "it did not say why"
        super().__init__(
            f"{spelled(words)} ended with {answer.code}: {why}. "
            f'What to do: {RUNBOOK}, section "{section}"'
        )
        self.is_evidence = answer.code == INTEGRITY
        self.is_final = answer.code in (USAGE, INTEGRITY)


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """How a command ended, and the document that it printed."""

    code: int
    document: Mapping[str, Any]
    last_words: str = ""


class Command:
    """One command; ``end`` may be called from a signal handler while it runs."""

    def __init__(self, words: Sequence[str], *, environment: Mapping[str, str]) -> None:
        self.words = tuple(words)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def answer(
        self, section: str, accept: Sequence[int] = (OK,), refusals: Sequence[str] = ()
    ) -> CommandAnswer:
        """Run it, and again while another process holds what it needs.

        ``refusals`` are codes in the document of a refusal that are an answer, too.
        """
        deadline = time.monotonic() + PATIENCE_SEC
        while True:
            run = self._run()
            if run.document.get("code") not in _HELD or time.monotonic() > deadline:
                break
            _LOG.info("%s; we wait", run.document.get("detail"))
            time.sleep(_LOOK_SEC)
        if run.code not in accept and run.document.get("code") not in refusals:
            raise CommandFailed(self.words, run, section)
        return run

    def end(self) -> None:
        """Ask the whole group to end, then make it."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        _signal(process, signal.SIGTERM)
        try:
            process.wait(_STOP_SEC)
        except subprocess.TimeoutExpired:
            _LOG.warning("%s did not end within %.0f s and is killed", process.pid, _STOP_SEC)
        _signal(process, signal.SIGKILL)

    def _run(self) -> CommandAnswer:
        _LOG.info("$ %s", spelled(self.words))
        process = self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "cli.main", *self.words, "--json"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - one call into libc, loaded before
        )
        try:
            said, last = _heard(process)
        except BaseException:
            self.end()
            raise
        return CommandAnswer(process.returncode, _document(said), last)


def spelled(words: Sequence[str]) -> str:
    """As it would be typed."""
    return "veen " + shlex.join(words)


def environment() -> dict[str, str]:
    """Ours, without what would have a command write where nobody looks."""
    environ = dict(os.environ)
    environ.setdefault("PYTHONUNBUFFERED", "1")
    return environ


def _heard(process: subprocess.Popen[bytes]) -> tuple[bytes, str]:
    """All that it prints, and the last line of what it says, which is logged as it comes."""
    last: list[str] = []
    listener = threading.Thread(target=_listen, args=(process, last), daemon=True)
    listener.start()
    assert process.stdout is not None  # noqa: S101 - we asked for it
    with process.stdout as stdout:
        said = stdout.read()
    process.wait()
    listener.join()
    return said, last[-1] if last else ""


def _listen(process: subprocess.Popen[bytes], last: list[str]) -> None:
    assert process.stderr is not None  # noqa: S101 - we asked for it
    with process.stderr as stderr:
        for raw in stderr:
            line = raw.decode(errors="replace").rstrip()
            if line:
                _LOG.info("%s", line)
                last[:] = [line]


def _document(said: bytes) -> Mapping[str, Any]:
    """The one document of a command; what is none says nothing."""
    try:
        document = json.loads(said)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def end_with_parent() -> None:
    """For a child, before it is another program: it is asked to end when its parent does."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class NoStorage(DagRefusal):
    """A zone without [storage] has no archive."""


def acting(of: ZoneConfig) -> list[str]:
    """The settings, and who acts."""
    result, who = ["--config", str(of.file)], of.dags.acting
    if who.client is not None:
        result += ["--client", str(who.client)]
    if who.principal is not None:
        result += ["--principal", who.principal]
    if who.passphrase_file is not None:
        result += ["--passphrase-file", str(who.passphrase_file)]
    return result


def storage(of: ZoneConfig) -> StorageSettings:
    if of.storage is None:
        raise NoStorage(f"{of.file} has no [storage]: there is no archive to work with")
    return of.storage


def store(of: ZoneConfig) -> list[str]:
    return [*storage(of).options(), "--hub-id", of.hub_id.hex()]


def data_dir(of: ZoneConfig) -> list[str]:
    return ["--data-dir", str(of.hub_data)]


def checkpoint_create(of: ZoneConfig) -> list[str]:
    return ["recorder", "checkpoint", "create", *acting(of)]


def checkpoint_verify(of: ZoneConfig) -> list[str]:
    return ["recorder", "checkpoint", "verify", *acting(of)]


def anchor_publish(of: ZoneConfig) -> list[str]:
    return ["anchor", "publish", "--config", str(of.file)]


def anchor_list(of: ZoneConfig) -> list[str]:
    return ["anchor", "list", "--config", str(of.file)]


def archive_push(of: ZoneConfig) -> list[str]:
    """Keys are sealed where they are at hand; elsewhere what was sealed before stays."""
    escrow = of.dags.acting.escrow
    has_keys = any((of.hub_data / "keys").glob("*.key"))
    sealed = ["--escrow", str(escrow)] if escrow is not None and has_keys else []
    return ["archive", "push", *data_dir(of), *store(of), *sealed]


def hub_identity(of: ZoneConfig) -> list[str]:
    """What the hub itself says of its keys: an archive is not judged by its own word alone."""
    return ["--hub-identity", str(of.hub_data)]


def archive_verify(of: ZoneConfig) -> list[str]:
    return ["archive", "verify", *store(of), *hub_identity(of)]


def audit_terms(of: ZoneConfig, out: Path) -> list[str]:
    return ["audit", "terms", "--config", str(of.file), "--out", str(out)]


def record_file(of: ZoneConfig, file: Path, origin: str) -> list[str]:
    """Each line is recorded once, however often this is run or killed."""
    capability = of.dags.acting.capability
    cap = [] if capability is None else ["--cap", str(capability)]
    named = ["--type", "audit.report", "--subject", f"zone:{of.name}", "--origin", origin]
    fields = ["--payload-field", "payload"]
    return ["recorder", "tail", str(file), "--once", *acting(of), *cap, *named, *fields]


def snapshot(
    of: ZoneConfig, verb: str, stream: str, reader: Sequence[str], file: Path
) -> list[str]:
    """``verb`` is create or verify; ``reader`` says who opens the events."""
    place = ["--out", str(file)] if verb == "create" else ["--snapshot", str(file)]
    overlay = ["--overlay", of.dags.fold.overlay]
    return ["snapshot", verb, *store(of), "--stream", stream, *reader, *overlay, *place]


def bridge_export(of: ZoneConfig, asked: dict[str, object], operator: str) -> list[str]:
    """``asked`` are the params of the DAG."""
    result = ["bridge", "export", "--config", str(of.file), "--medium", str(asked["medium"])]
    result += ["--operator", operator, "--discard-unfinished"]
    if asked.get("medium_id"):
        result += ["--medium-id", str(asked["medium_id"])]
    ranges = asked.get("ranges")
    for range_ in ranges if isinstance(ranges, list) else ():
        result += ["--range", str(range_)]
    if asked.get("gap_file"):
        result += ["--from-gap-file", str(asked["gap_file"])]
    return [*result, "--heartbeat"] if asked.get("heartbeat") else result


def bridge_verify(places: Sequence[str], level: Sequence[str], transcript: Path) -> list[str]:
    return ["bridge", "verify", *places, *level, "--transcript", str(transcript)]


def bridge_reconcile(of: ZoneConfig, out: Path) -> list[str]:
    return ["bridge", "reconcile", "--config", str(of.file), *report_files(out)]


def report_files(out: Path) -> list[str]:
    """Everything that a reconciliation writes stands beside ``out``."""
    files = ["--out", str(out), "--svg", str(out.with_suffix(".svg"))]
    return [*files, "--gaps", str(out.parent / "gaps")]


def hub_start(of: ZoneConfig) -> list[str]:
    return ["hub", "start", *data_dir(of), "--config", str(of.file)]


def hub_verify(of: ZoneConfig) -> list[str]:
    return ["hub", "verify", *data_dir(of), "--config", str(of.file)]


def retention(of: ZoneConfig) -> list[str]:
    return ["hub", "retention", *data_dir(of), "--config", str(of.file)]
