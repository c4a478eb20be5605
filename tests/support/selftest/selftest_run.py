"""``veen selftest`` as it is run, in a folder that shows what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from support.paths import SUPPORT, TESTS

VEEN = Path(sys.executable).with_name("veen")
MUTANTS = SUPPORT / "selftest" / "mutants"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.out)
        return result

    def failed(self) -> dict[str, str]:
        """What the steps that failed say, by name."""
        return {item["name"]: item["detail"] for item in self.document["steps"] if not item["ok"]}


def environment(folder: Path, mutant: str | None = None) -> dict[str, str]:
    result = {
        "HOME": str(folder),
        "PATH": f"{VEEN.parent}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "TMPDIR": str(folder),
    }
    if mutant is not None:
        result |= {"PYTHONPATH": f"{MUTANTS}{os.pathsep}{TESTS}", "VEEN_MUTANT": mutant}
    return result


def begin(folder: Path, *arguments: object, mutant: str | None = None) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [VEEN, "selftest", *map(str, arguments)],
        cwd=folder,
        env=environment(folder, mutant),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 280) -> Done:
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Done(process.returncode, out, err)


def run(folder: Path, *arguments: object, mutant: str | None = None) -> Done:
    return finish(begin(folder, *arguments, mutant=mutant))


@contextmanager
def running(folder: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A run that is over when the block is, whatever a test finds out in it."""
    process = begin(folder, *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()


def processes_of(folder: Path) -> list[psutil.Process]:
    """Whatever a run has started: all of it works in its folder."""
    return [item for item in psutil.process_iter() if _is_of(item, folder)]


def hub_of(folder: Path) -> list[psutil.Process]:
    """The same without the program itself."""
    return [process for process in processes_of(folder) if str(VEEN) not in process.cmdline()]


def _is_of(process: psutil.Process, folder: Path) -> bool:
    try:
        is_dead = process.status() == psutil.STATUS_ZOMBIE
        return not is_dead and process.cwd() == str(folder)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
