"""Processor time of short commands: the help of the program and of every group, and others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from measure import Measurement, compare_timed

from cli import table

VEEN = str(Path(sys.executable).with_name("veen"))
BARE = (sys.executable, "-c", "pass")
ISOLATED = (sys.executable, "-S", "-c", "pass")
MILLISECONDS = 1e3
ROUNDS = 5
# 0.25 s where Python itself starts in 0.04 s.
AT_MOST = 6
COMMANDS = (
    ("version",),
    ("explain-error", "E.SEQ"),
    ("hub", "status", "--help"),
    ("bridge", "verify", "--help"),
    ("no-such-command",),
    ("hub", "status", "--no-such-option"),
)


def measure() -> Iterator[Measurement]:
    groups = ((name, "--help") for name in table.read())
    for words in (("--help",), *groups, *COMMANDS):
        yield _measured(words)
    isolated = compare_timed(partial(_cpu, BARE), partial(_cpu, ISOLATED), ROUNDS)
    yield Measurement(
        bench="cli_start_python",
        value=isolated.seconds * MILLISECONDS,
        unit="ms of CPU",
        against="python -S -c pass",
        ratio=isolated.ratio,
    )


def _measured(words: tuple[str, ...]) -> Measurement:
    _cpu((VEEN, *words))  # it compiles what is not compiled yet
    start = compare_timed(partial(_cpu, (VEEN, *words)), partial(_cpu, BARE), ROUNDS)
    return Measurement(
        bench=f"cli_start: veen {' '.join(words)}",
        value=start.seconds * MILLISECONDS,
        unit="ms of CPU",
        against="python -c pass",
        ratio=start.ratio,
        at_most=AT_MOST,
    )


def _cpu(argv: tuple[str, ...]) -> float:
    """User and system time of one process."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise AssertionError(f"{' '.join(argv)} exits with {process.returncode}")
    return used.ru_utime + used.ru_stime
