"""``veen`` commands as child processes of a task, and the command line of each.

The command lines are those an operator can type. The error output goes to the task's log, line by
line; the output is a JSON document. The child and all its descendants end with the task, however
that ends.
"""

from __future__ import annotations

import contextlib
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

from veen.objects.port import StoreLocation
from veen.system.child_process import end_with_parent
from veen_airflow.artefacts import DagRefusal
from zone.config import ZoneConfig

RUNBOOK: Final = "docs/runbook.md"
LOCK_TIMEOUT_SEC: Final = 300.0
"""How long a command waits for a lock on an identity or state that another process holds."""

OK, USAGE, NETWORK, INTEGRITY = 0, 1, 2, 3
_HELD: Final = ("LOCKED", "BUSY")
_LOOK_SEC: Final = 1.0
_STOP_SEC: Final = 20.0
_LOG = logging.getLogger(__name__)


class CommandFailed(Exception):
    """A failed command: its command line, exit code, reason, and section of the runbook.

    ``is_final`` means that a retry does not help: a usage error, or something signed does not
    verify, which is ``is_evidence``.
    """

    def __init__(self, argv: Sequence[str], answer: CommandAnswer, section: str) -> None:
        why = answer.document.get("detail") or answer.last_line or "it did not say why"
        super().__init__(
            f"{command_line(argv)} ended with {answer.code}: {why}. "
            f'What to do: {RUNBOOK}, section "{section}"'
        )
        self.is_evidence = answer.code == INTEGRITY
        self.is_final = answer.code in (USAGE, INTEGRITY)


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The exit code of a command, and the document that it printed."""

    code: int
    document: Mapping[str, Any]
    last_line: str = ""


class Command:
    """A command; ``end`` may be called from a signal handler while it runs."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        lock_timeout_sec: float = LOCK_TIMEOUT_SEC,
        look_sec: float = _LOOK_SEC,
    ) -> None:
        self._lock_timeout_sec = lock_timeout_sec
        self._look_sec = look_sec
        self.argv = tuple(argv)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def answer(
        self, section: str, accept: Sequence[int] = (OK,), refusals: Sequence[str] = ()
    ) -> CommandAnswer:
        """Run the command, with retries while another process holds a lock that it needs.

        ``refusals`` are codes of refusals that are accepted as an answer.
        """
        deadline = time.monotonic() + self._lock_timeout_sec
        while True:
            run = self._run()
            if run.document.get("code") not in _HELD or time.monotonic() > deadline:
                break
            _LOG.info("%s; waiting", run.document.get("detail"))
            time.sleep(self._look_sec)
        if run.code not in accept and run.document.get("code") not in refusals:
            raise CommandFailed(self.argv, run, section)
        return run

    def end(self) -> None:
        """Terminate the process group, then kill it."""
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
        _LOG.info("$ %s", command_line(self.argv))
        process = self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "cli.main", *self.argv, "--json"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - two calls into libc, loaded before
        )
        try:
            output, last = _read_output(process)
        except BaseException:
            self.end()
            raise
        return CommandAnswer(process.returncode, _document(output), last)


def command_line(argv: Sequence[str]) -> str:
    """The command as an operator would type it."""
    return "veen " + shlex.join(argv)


def environment() -> dict[str, str]:
    """The environment of a command."""
    environ = dict(os.environ)
    environ.setdefault("PYTHONUNBUFFERED", "1")
    return environ


def _read_output(process: subprocess.Popen[bytes]) -> tuple[bytes, str]:
    """The output, and the last line of the error output, which is logged as it arrives."""
    last: list[str] = []
    listener = threading.Thread(target=_log_errors, args=(process, last), daemon=True)
    listener.start()
    assert process.stdout is not None  # noqa: S101 - we asked for it
    with process.stdout as stdout:
        output = stdout.read()
    process.wait()
    listener.join()
    return output, last[-1] if last else ""


def _log_errors(process: subprocess.Popen[bytes], last: list[str]) -> None:
    assert process.stderr is not None  # noqa: S101 - we asked for it
    with process.stderr as stderr:
        for raw in stderr:
            line = raw.decode(errors="replace").rstrip()
            if line:
                _LOG.info("%s", line)
                last[:] = [line]


def _document(output: bytes) -> Mapping[str, Any]:
    """The JSON object that a command printed; empty if it printed none."""
    try:
        document = json.loads(output)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class NoStorage(DagRefusal):
    """A zone without [storage] has no archive."""


def acting(config: ZoneConfig) -> list[str]:
    """Options for the settings and the acting identity."""
    options, who = ["--config", str(config.file)], config.dags.acting
    if who.client is not None:
        options += ["--client", str(who.client)]
    if who.principal is not None:
        options += ["--principal", who.principal]
    if who.passphrase_file is not None:
        options += ["--passphrase-file", str(who.passphrase_file)]
    return options


def storage(config: ZoneConfig) -> StoreLocation:
    if config.storage is None:
        raise NoStorage(f"{config.file}: expected [storage], got none: the zone has no archive")
    return config.storage


def store(config: ZoneConfig) -> list[str]:
    return [*storage(config).arguments(), "--hub-id", config.hub_id.hex()]


def data_dir(config: ZoneConfig) -> list[str]:
    return ["--data-dir", str(config.hub_data)]


def checkpoint_create(config: ZoneConfig) -> list[str]:
    return ["recorder", "checkpoint", "create", *acting(config)]


def checkpoint_verify(config: ZoneConfig) -> list[str]:
    return ["recorder", "checkpoint", "verify", *acting(config)]


def anchor_publish(config: ZoneConfig) -> list[str]:
    return ["anchor", "publish", "--config", str(config.file)]


def anchor_list(config: ZoneConfig) -> list[str]:
    return ["anchor", "list", "--config", str(config.file)]


def archive_push(config: ZoneConfig) -> list[str]:
    """The push of the archive; private keys are escrowed if they are on this host."""
    escrow = config.dags.acting.escrow
    has_keys = any((config.hub_data / "keys").glob("*.key"))
    sealed = ["--escrow", str(escrow)] if escrow is not None and has_keys else []
    return ["archive", "push", *data_dir(config), *store(config), *sealed]


def hub_identity(config: ZoneConfig) -> list[str]:
    """The option for the hub's own identity, so that an archive is not verified by itself alone."""
    return ["--hub-identity", str(config.hub_data)]


def archive_verify(config: ZoneConfig) -> list[str]:
    return ["archive", "verify", *store(config), *hub_identity(config)]


def audit_terms(config: ZoneConfig, out: Path) -> list[str]:
    return ["audit", "terms", "--config", str(config.file), "--out", str(out)]


def record_file(config: ZoneConfig, file: Path, origin: str) -> list[str]:
    """The recording of a file; each line is recorded exactly once, through any crash."""
    capability = config.dags.acting.capability
    cap = [] if capability is None else ["--cap", str(capability)]
    named = ["--type", "audit.report", "--subject", f"zone:{config.name}", "--origin", origin]
    fields = ["--payload-field", "payload"]
    return ["recorder", "tail", str(file), "--once", *acting(config), *cap, *named, *fields]


def snapshot(
    config: ZoneConfig, verb: str, stream: str, reader: Sequence[str], file: Path
) -> list[str]:
    """``veen snapshot``; ``verb`` is create or verify, ``reader`` are options of the reader."""
    place = ["--out", str(file)] if verb == "create" else ["--snapshot", str(file)]
    overlay = ["--overlay", config.dags.fold.overlay]
    return ["snapshot", verb, *store(config), "--stream", stream, *reader, *overlay, *place]


def bridge_export(config: ZoneConfig, asked: dict[str, object], operator: str) -> list[str]:
    """``veen bridge export``; ``asked`` are the params of the DAG."""
    argv = ["bridge", "export", "--config", str(config.file), "--medium", str(asked["medium"])]
    argv += ["--operator", operator, "--discard-unfinished"]
    if asked.get("medium_id"):
        argv += ["--medium-id", str(asked["medium_id"])]
    ranges = asked.get("ranges")
    for range_ in ranges if isinstance(ranges, list) else ():
        argv += ["--range", str(range_)]
    if asked.get("gap_file"):
        argv += ["--from-gap-file", str(asked["gap_file"])]
    return [*argv, "--heartbeat"] if asked.get("heartbeat") else argv


def bridge_verify(places: Sequence[str], level: Sequence[str], transcript: Path) -> list[str]:
    return ["bridge", "verify", *places, *level, "--transcript", str(transcript)]


def bridge_reconcile(config: ZoneConfig, out: Path) -> list[str]:
    return ["bridge", "reconcile", "--config", str(config.file), *report_files(out)]


def report_files(out: Path) -> list[str]:
    """Options for the files of a reconciliation, all beside ``out``."""
    files = ["--out", str(out), "--svg", str(out.with_suffix(".svg"))]
    return [*files, "--gaps", str(out.parent / "gaps")]


def hub_start(config: ZoneConfig) -> list[str]:
    return ["hub", "start", *data_dir(config), "--config", str(config.file)]


def hub_verify(config: ZoneConfig) -> list[str]:
    return ["hub", "verify", *data_dir(config), "--config", str(config.file)]


def retention(config: ZoneConfig) -> list[str]:
    return ["hub", "retention", *data_dir(config), "--config", str(config.file)]
