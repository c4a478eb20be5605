"""A ``veen`` command as a child process of a task: the same words that an operator can type.

What it says on its error output goes into the task's log, line by line; what it prints is one JSON
document. The child and all that it starts end with the task, however that ends.
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
from typing import Any, Final

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

    def __init__(self, words: Sequence[str], answer: Answer, section: str) -> None:
        why = answer.document.get("detail") or answer.last_words or "it did not say why"
        super().__init__(
            f"{spelled(words)} ended with {answer.code}: {why}. "
            f'What to do: {RUNBOOK}, section "{section}"'
        )
        self.is_evidence = answer.code == INTEGRITY
        self.is_final = answer.code in (USAGE, INTEGRITY)


@dataclass(frozen=True, slots=True)
class Answer:
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
    ) -> Answer:
        """Run it, and again while another process holds what it needs.

        ``refusals`` are codes in the document of a refusal that are an answer, too.
        """
        deadline = time.monotonic() + PATIENCE_SEC
        while True:
            found = self._run()
            if found.document.get("code") not in _HELD or time.monotonic() > deadline:
                break
            _LOG.info("%s; we wait", found.document.get("detail"))
            time.sleep(_LOOK_SEC)
        if found.code not in accept and found.document.get("code") not in refusals:
            raise CommandFailed(self.words, found, section)
        return found

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

    def _run(self) -> Answer:
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
        return Answer(process.returncode, _document(said), last)


def spelled(words: Sequence[str]) -> str:
    """As it would be typed."""
    return "veen " + shlex.join(words)


def environment() -> dict[str, str]:
    """Ours, without what would have a command write where nobody looks."""
    found = dict(os.environ)
    found.setdefault("PYTHONUNBUFFERED", "1")
    return found


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
        found = json.loads(said)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def end_with_parent() -> None:
    """For a child, before it is another program: it is asked to end when its parent does."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
